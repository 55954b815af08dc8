/*
 * ctl_test.c - coppicectl against a real daemon with a real client: every verb, as people and as
 * programs read it.
 */
#include "ctl_ask.h"
#include "element.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_error(json_t *object, int code)
{
	json_t *error = json_object_get(object, "error");

	assert_int_equal(integer(error, "code"), code);
	assert_true(json_string_length(json_object_get(error, "message")) > 0);
	json_decref(object);
}

static json_int_t count_tokens(struct ctl_fixture *f)
{
	json_t *object = ASK(f, 0, "status");
	json_int_t n = integer(object, "n_tokens");

	json_decref(object);
	return n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_status_counts_what_was_computed(void **state)
{
	json_t *object = ASK(*state, 0, "status");

	assert_int_equal(integer(object, "n_tokens"), CTL_N_TOKENS);
	assert_int_equal(integer(object, "n_seqs"), 2);
	assert_int_equal(integer(object, "tokens_matched"), strlen(CTL_TRUNK));
	assert_true(integer(object, "entries") >= 6);
	assert_int_equal(integer(object, "entries_failed"), 0);
	assert_true(json_is_false(json_object_get(object, "draining")));
	assert_string_equal(json_string_value(json_object_get(object, "backend")), test_backend());
	json_decref(object);
}

static void test_status_reads_as_text(void **state)
{
	struct ctl_answer a;

	RUN(*state, &a, "status");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "coppiced " COPPICE_VERSION ", up ");
	assert_says(a.out, "51 tokens");
	assert_says(a.out, "2 sequences");
	assert_string_equal(a.err, "");
}

static void test_tree_is_drawn(void **state)
{
	struct ctl_answer a;

	RUN(*state, &a, "tree");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "model \"ctl\"");
	assert_says(a.out, "  └─ \"In the b\"...");
	assert_says(a.out, "     ├─ \"");
	assert_says(a.out, "     └─ \"");
	assert_says(a.out, "\"was the \"...");
	assert_says(a.out, "\"God crea\"...");
}

static void test_tree_quotes_names(void **state)
{
	struct ctl_fixture *f = *state;
	struct coppice_model_info info = {.name = "m\", user root\\",
					  .n_layers = 1,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = 64,
					  .dtype = (enum coppice_dtype)element_dtype()};
	struct coppice_match match;
	struct coppice_seq *seq;
	struct ctl_answer a;
	uint32_t model, id = 1;

	assert_int_equal(coppice_model_open(f->c, &info, &model), 0);
	assert_int_equal(coppice_seq_open(f->lane, model, &id, 1, 0, &seq, &match), 0);
	RUN(f, &a, "tree");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "model \"m\\\", user root\\\\\", user ");
	coppice_seq_close(seq);
}

static void test_tree_json_links_children_to_parents(void **state)
{
	json_int_t trunk = find_node(*state, 'I');
	json_t *object = ASK(*state, 0, "tree"), *node;
	size_t i, n_children = 0;

	json_array_foreach(json_object_get(object, "nodes"), i, node)
	{
		if (integer(node, "parent") != trunk)
			continue;
		n_children++;
		assert_int_equal(integer(node, "pos"), strlen(CTL_TRUNK));
		assert_int_equal(integer(node, "n_users"), 1);
	}
	assert_true(trunk > 0);
	assert_int_equal(n_children, 2);
	json_decref(object);
}

static void test_sessions_list_this_process(void **state)
{
	json_t *object = ASK(*state, 0, "sessions"), *session;
	size_t i, n_found = 0;

	json_array_foreach(json_object_get(object, "sessions"), i, session)
	{
		if (integer(session, "pid") != getpid())
			continue;
		n_found++;
		assert_int_equal(integer(session, "uid"), getuid());
		assert_int_equal(integer(session, "n_lanes"), 1);
		assert_int_equal(integer(session, "n_seqs"), 2);
		assert_true(integer(session, "n_arenas") >= 1);
		assert_int_equal(integer(session, "tokens_computed"), CTL_N_TOKENS);
	}
	assert_int_equal(n_found, 1);
	json_decref(object);
}

static void test_models_say_how_they_are_split(void **state)
{
	json_t *object = ASK(*state, 0, "models");
	const json_t *models = json_object_get(object, "models");
	json_t *model = json_array_get(models, 0);
	struct ctl_answer a;

	assert_int_equal(json_array_size(models), 1);
	assert_int_equal(integer(model, "n_devices"), 1);
	assert_string_equal(json_string_value(json_object_get(model, "split")), "tokens");
	assert_string_equal(json_string_value(json_object_get(model, "split_why")), "one device");
	RUN(*state, &a, "models");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "pages of");
	json_decref(object);
}

static void test_sessions_read_as_text(void **state)
{
	char pid[16];
	struct ctl_answer a;

	snprintf(pid, sizeof(pid), " %d ", (int)getpid());
	RUN(*state, &a, "sessions");
	assert_int_equal(a.status, 0);
	assert_says(a.out, pid);
	assert_says(a.out, "computed\n");
}

static void test_top_looks_as_often_as_asked(void **state)
{
	const char *at;
	struct ctl_answer a;
	int n = 0;

	RUN(*state, &a, "top", "--count", "3", "--interval", "20ms");
	assert_int_equal(a.status, 0);
	for (at = a.out; (at = strstr(at, "batches/s")); at++)
		n++;
	assert_int_equal(n, 3);
	assert_null(strchr(a.out, '\033'));
}

static void test_top_json_is_an_object_a_line(void **state)
{
	struct ctl_answer a;
	int n = 0;

	RUN(*state, &a, "--json", "top", "--count", "2", "--interval", "20ms");
	assert_int_equal(a.status, 0);
	for (char *line = strtok(a.out, "\n"); line; line = strtok(NULL, "\n"), n++) {
		json_t *object = json_loads(line, 0, NULL);
		assert_true(json_is_object(json_object_get(object, "status")));
		assert_true(json_is_array(json_object_get(object, "sessions")));
		json_decref(object);
	}
	assert_int_equal(n, 2);
}

/* Reads from a terminal until what is seen, for 10 s at most. */
static bool terminal_says(int fd, const char *what)
{
	char seen[CTL_OUTPUT_BYTES];
	size_t n = 0;
	ssize_t r;

	while (n + 1 < sizeof(seen)) {
		if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000) != 1)
			return false;
		r = read(fd, seen + n, sizeof(seen) - 1 - n);
		if (r <= 0)
			return false;
		n += (size_t)r;
		seen[n] = '\0';
		if (strstr(seen, what))
			return true;
	}
	return false;
}

/* Starts top on a terminal of its own. */
static pid_t top_on_terminal(struct ctl_fixture *f, int *ret_fd)
{
	pid_t pid = forkpty(ret_fd, NULL, NULL, NULL);

	assert_true(pid >= 0);
	if (pid == 0) {
		execl(COPPICECTL_PATH, "coppicectl", "--socket", f->socket, "top", NULL);
		_exit(127);
	}
	return pid;
}

static void end_top_by(struct ctl_fixture *f, char key)
{
	int fd, status;
	pid_t pid = top_on_terminal(f, &fd);

	assert_true(terminal_says(fd, "\033[H\033[2Jcoppiced"));
	assert_int_equal(write(fd, &key, 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
}

static void test_top_ends_with_q(void **state)
{
	end_top_by(*state, 'q');
}

static void test_top_ends_with_control_c(void **state)
{
	end_top_by(*state, '\003');
}

static void test_top_says_when_the_daemon_goes(void **state)
{
	struct ctl_fixture *f = *state;
	int fd, status;
	pid_t pid = top_on_terminal(f, &fd);

	assert_true(terminal_says(fd, "batches/s"));
	kill(f->daemon, SIGKILL);
	waitpid(f->daemon, NULL, 0);
	f->daemon = 0;
	assert_true(terminal_says(fd, "has closed the connection"));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	close(fd);
}

static void test_pin_keeps_a_path_from_eviction(void **state)
{
	struct ctl_fixture *f = *state;
	json_t *object;
	char word[24];

	ctl_fixture_close_seqs(f);
	snprintf(word, sizeof(word), "%d", (int)find_node(f, 'w'));
	object = ASK(f, 0, "pin", word, "--for", "10m");
	snprintf(word, sizeof(word), "%d", (int)integer(object, "pin"));
	json_decref(object);

	object = ASK(f, 0, "evict");
	assert_true(integer(object, "n_pages") > 0);
	json_decref(object);
	assert_int_equal(count_tokens(f), strlen(CTL_TRUNK CTL_SECOND));

	json_decref(ASK(f, 0, "unpin", word));
	json_decref(ASK(f, 0, "evict", "--model", "ctl"));
	assert_int_equal(count_tokens(f), 0);
}

static void test_evict_stops_at_the_pages_asked_for(void **state)
{
	struct ctl_answer a;

	ctl_fixture_close_seqs(*state);
	RUN(*state, &a, "evict", "--pages", "1");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "pages evicted\n");
	assert_true(count_tokens(*state) > 0);
}

static void test_evict_leaves_what_is_used(void **state)
{
	json_t *object = ASK(*state, 0, "evict");

	assert_int_equal(integer(object, "n_pages"), 0);
	json_decref(object);
	assert_int_equal(count_tokens(*state), CTL_N_TOKENS);
}

static void test_drain_refuses_new_sequences_until_off(void **state)
{
	struct ctl_fixture *f = *state;
	struct coppice_seq *seq = NULL;
	struct coppice_match match;
	struct ctl_answer a;
	uint32_t id = 1;

	RUN(f, &a, "drain");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "is draining");
	RUN(f, &a, "status");
	assert_says(a.out, ", draining");
	assert_true(coppice_seq_open(f->lane, f->model, &id, 1, 0, &seq, &match) < 0);

	json_decref(ASK(f, 0, "drain", "--off"));
	assert_int_equal(coppice_seq_open(f->lane, f->model, &id, 1, 0, &seq, &match), 0);
	coppice_seq_close(seq);
}

static void test_unknown_node_and_pin_are_refused(void **state)
{
	struct ctl_answer a;

	assert_error(ASK(*state, 1, "pin", "987654321", "--for", "1m"), -ENOENT);
	assert_error(ASK(*state, 1, "unpin", "987654321"), -ENOENT);
	RUN(*state, &a, "unpin", "987654321");
	assert_int_equal(a.status, 1);
	assert_says(a.err, "coppicectl: ");
	assert_says(a.err, "(pin)");
	assert_string_equal(a.out, "");
}

static void test_unknown_model_is_refused(void **state)
{
	assert_error(ASK(*state, 1, "evict", "--model", "no such model"), -ENOENT);
}

static void test_too_long_a_pin_is_refused(void **state)
{
	char node[24];

	snprintf(node, sizeof(node), "%d", (int)find_node(*state, 'I'));
	assert_error(ASK(*state, 1, "pin", node, "--for", "400d"), -EINVAL);
}

/* Another user than the daemon's; 0: there is none to become. */
static uid_t somebody_else(void)
{
	const struct passwd *nobody = getpwnam("nobody");

	return getuid() == 0 && nobody ? nobody->pw_uid : 0;
}

static void test_other_users_may_not_evict_or_drain(void **state)
{
	uid_t uid = somebody_else();
	struct ctl_answer a;

	if (uid == 0)
		skip();
	ctl_run_as(uid, *state, &a, (const char *const[]){"evict", NULL});
	assert_int_equal(a.status, 1);
	assert_says(a.err, "coppicectl: ");
	ctl_run_as(uid, *state, &a, (const char *const[]){"drain", NULL});
	assert_int_equal(a.status, 1);
	assert_int_equal(count_tokens(*state), CTL_N_TOKENS);
}

static void test_other_users_see_their_own_alone(void **state)
{
	uid_t uid = somebody_else();
	struct ctl_answer a;

	if (uid == 0)
		skip();
	ctl_run_as(uid, *state, &a, (const char *const[]){"tree", NULL});
	assert_null(strstr(a.out, "In the b"));
	ctl_run_as(uid, *state, &a, (const char *const[]){"sessions", NULL});
	assert_null(strstr(a.out, "root"));
}

static void test_absent_daemon_is_said(void **state)
{
	struct ctl_fixture nowhere = {.socket = "/tmp/no-such-folder/sock"};
	struct ctl_answer a;

	(void)state;
	RUN(&nowhere, &a, "status");
	assert_int_equal(a.status, 1);
	assert_says(a.err, "there is no socket /tmp/no-such-folder/sock");
	assert_error(ASK(&nowhere, 1, "status"), -ENOENT);
}

static void test_no_socket_is_said(void **state)
{
	struct ctl_fixture folder = {.socket = "/tmp"}, file = {.socket = COPPICECTL_PATH};
	struct ctl_answer a;

	(void)state;
	RUN(&folder, &a, "status");
	assert_int_equal(a.status, 1);
	assert_says(a.err, "/tmp is a directory, no socket");
	RUN(&file, &a, "status");
	assert_int_equal(a.status, 1);
	assert_says(a.err, " is a file, no socket");
}

static void test_bad_command_lines_end_with_2(void **state)
{
	static const char *const lines[][5] = {
		{NULL},
		{"dance"},
		{"status", "now"},
		{"status", "--off"},
		{"pin", "1"},
		{"pin", "--for", "1m"},
		{"pin", "x", "--for", "1m"},
		{"pin", "1", "--for", "soon"},
		{"pin", "1", "--for", "0"},
		{"pin", "1", "--for", "99999999999999999999s"},
		{"evict", "--pages", "-1"},
		{"drain", "--model", "m"},
		{"top", "--count", "many"},
	};
	struct ctl_fixture nowhere = {.socket = "/tmp/no-such-folder/sock"};
	struct ctl_answer a;

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		ctl_run_as(getuid(), &nowhere, &a, lines[i]);
		assert_int_equal(a.status, 2);
		assert_says(a.err, "coppicectl: ");
	}
}

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, ctl_fixture_new, ctl_fixture_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DAEMON(test_status_counts_what_was_computed),
		WITH_DAEMON(test_status_reads_as_text),
		WITH_DAEMON(test_tree_is_drawn),
		WITH_DAEMON(test_tree_quotes_names),
		WITH_DAEMON(test_tree_json_links_children_to_parents),
		WITH_DAEMON(test_sessions_list_this_process),
		WITH_DAEMON(test_sessions_read_as_text),
		WITH_DAEMON(test_models_say_how_they_are_split),
		WITH_DAEMON(test_top_looks_as_often_as_asked),
		WITH_DAEMON(test_top_json_is_an_object_a_line),
		WITH_DAEMON(test_top_ends_with_q),
		WITH_DAEMON(test_top_ends_with_control_c),
		WITH_DAEMON(test_top_says_when_the_daemon_goes),
		WITH_DAEMON(test_pin_keeps_a_path_from_eviction),
		WITH_DAEMON(test_evict_stops_at_the_pages_asked_for),
		WITH_DAEMON(test_evict_leaves_what_is_used),
		WITH_DAEMON(test_drain_refuses_new_sequences_until_off),
		WITH_DAEMON(test_unknown_node_and_pin_are_refused),
		WITH_DAEMON(test_unknown_model_is_refused),
		WITH_DAEMON(test_too_long_a_pin_is_refused),
		WITH_DAEMON(test_other_users_may_not_evict_or_drain),
		WITH_DAEMON(test_other_users_see_their_own_alone),
		cmocka_unit_test(test_absent_daemon_is_said),
		cmocka_unit_test(test_no_socket_is_said),
		cmocka_unit_test(test_bad_command_lines_end_with_2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
