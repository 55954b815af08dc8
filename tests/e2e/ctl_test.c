/*
 * ctl_test.c - coppicectl against a real daemon with a real client: every verb but top, as people
 * and as programs read it.
 */
#include "ctl_ask.h"
#include "element.h"

#include <errno.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
	assert_int_equal(integer(object, "nodes_split"), 1);
	assert_int_equal(integer(object, "nodes_collapsed"), 0);
	assert_int_equal(integer(object, "nodes_evicted"), 0);
	assert_true(integer(object, "entries") >= 6);
	assert_int_equal(integer(object, "entries_failed"), 0);
	assert_true(json_is_false(json_object_get(object, "draining")));
	assert_string_equal(json_string_value(json_object_get(object, "backend")), test_backend());
	json_decref(object);
}

/* Of 80 GB a user has 30: two copies of a model of 7 billion parameters, or one of 14. */
static void test_weights_take_half_of_the_memory_and_a_user_three_quarters_of_it(void **state)
{
	json_int_t memory = (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
	json_t *object = ASK(*state, 0, "status");
	json_int_t most = integer(object, "weights_bytes_max");

	if (strcmp(test_backend(), "cpu") == 0)
		assert_int_equal(most, memory / 2);
	assert_int_equal(integer(object, "domain_weights_bytes_max"), most / 4 * 3);
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
	assert_says(a.out, "  nodes      1 split, 0 collapsed into their parents, 0 evicted\n");
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

static void test_tree_goes_as_deep_as_asked(void **state)
{
	struct ctl_answer a;
	json_t *object;

	RUN(*state, &a, "tree", "--depth", "1");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "\"In the b\"...  (and 2 below)\n");
	assert_null(strstr(a.out, "God"));
	RUN(*state, &a, "tree", "--depth", "0");
	assert_says(a.out, "(and 3 below)\n");
	assert_null(strstr(a.out, "In the b"));
	object = ASK(*state, 0, "tree", "--depth", "1");
	assert_int_equal(json_array_size(json_object_get(object, "nodes")), 2);
	json_decref(object);
}

static void test_tree_shows_the_model_asked_for(void **state)
{
	struct ctl_answer a;

	RUN(*state, &a, "tree", "--model", "ctl");
	assert_says(a.out, "In the b");
}

/* As evict says it. */
static void test_tree_of_an_unknown_model_is_refused(void **state)
{
	struct ctl_answer a, evict;

	RUN(*state, &a, "tree", "--model", "other");
	RUN(*state, &evict, "evict", "--model", "other");
	assert_int_equal(a.status, 1);
	assert_string_equal(a.out, "");
	assert_string_equal(a.err, "coppicectl: No model is called \"other\".\n");
	assert_int_equal(evict.status, a.status);
	assert_string_equal(evict.err, a.err);
	assert_error(ASK(*state, 1, "tree", "--model", "other"), -ENOENT);
}

static void test_tree_of_a_model_without_nodes_is_empty(void **state)
{
	struct ctl_fixture *f = *state;
	struct ctl_answer a;

	ctl_fixture_close_seqs(f);
	json_decref(ASK(f, 0, "evict"));
	RUN(f, &a, "tree", "--model", "ctl");
	assert_int_equal(a.status, 0);
	assert_string_equal(a.out, "no nodes of a model \"ctl\"\n");
}

/* Ids that are below 256 by chance: a few of them might be text, all of them are not. */
static void test_tree_prints_ids_that_are_no_text_as_numbers(void **state)
{
	static const uint32_t texts[] = {72, 105, 33}, numbers[] = {7, 105, 33};
	struct ctl_fixture *f = *state;
	struct coppice_seq *seqs[2];
	struct coppice_match match;
	struct ctl_answer a;

	assert_int_equal(coppice_seq_open(f->lane, f->model, texts, 3, 1, &seqs[0], &match), 0);
	assert_int_equal(coppice_seq_open(f->lane, f->model, numbers, 3, 2, &seqs[1], &match), 0);
	ctl_fixture_compute(f, seqs[0], texts, 3);
	ctl_fixture_compute(f, seqs[1], numbers, 3);
	RUN(f, &a, "tree");
	assert_says(a.out, " \"Hi!\"\n");
	assert_says(a.out, " 7 105 33\n");
	for (int i = 0; i < 2; i++)
		coppice_seq_close(seqs[i]);
}

/* A sequence of one token of another model. */
static struct coppice_seq *open_another(struct ctl_fixture *f, const char *name)
{
	struct coppice_model_info info = {.name = name,
					  .n_layers = 2,
					  .n_q_heads = 1,
					  .n_kv_heads = 1,
					  .head_dim = 64,
					  .dtype = (enum coppice_dtype)element_dtype()};
	struct coppice_match match;
	struct coppice_seq *seq;
	uint32_t model, id = 1;

	assert_int_equal(coppice_model_open(f->c, &info, &model), 0);
	assert_int_equal(coppice_seq_open(f->lane, model, &id, 1, 0, &seq, &match), 0);
	return seq;
}

static void test_tree_quotes_names(void **state)
{
	struct ctl_fixture *f = *state;
	struct coppice_seq *seq = open_another(f, "m\", user root\\");
	struct ctl_answer a;

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
		assert_true(integer(session, "backend_ns") > 0);
	}
	assert_int_equal(n_found, 1);
	json_decref(object);
}

static void test_coppicectl_does_not_list_itself(void **state)
{
	json_t *object = ASK(*state, 0, "sessions");
	const json_t *sessions = json_object_get(object, "sessions");
	struct ctl_answer a;

	assert_int_equal(json_array_size(sessions), 1);
	assert_int_equal(integer(json_array_get(sessions, 0), "pid"), getpid());
	RUN(*state, &a, "sessions");
	assert_null(strstr(a.out, "coppicectl"));
	RUN(*state, &a, "status");
	assert_says(a.out, "sessions   1, 1 lanes");
	json_decref(object);
}

static void test_what_a_user_may_have_is_said(void **state)
{
	json_t *object = ASK(*state, 0, "status");
	struct ctl_answer a;

	RUN(*state, &a, "status");
	assert_says(a.out, "  each user  128 sessions; 8.0 GiB of arenas, 2.0 GiB of the device's, "
			   "256.0 MiB of prompts' ids\n");
	assert_says(a.out, "  a session  64 descriptors unread; 4,096 nodes a path\n");
	assert_says(a.out, " and 1,024 pins at most for one user, each for 1 d 0 h\n");
	assert_says(a.out, "  a batch    30 ms at most where others wait; prompts make passes 50 % "
			   "longer; a token 2,000 ms\n");
	assert_int_equal(integer(object, "segment_ms"), 5);
	assert_int_equal(integer(object, "batch_budget_ms"), 30);
	assert_int_equal(integer(object, "prompt_percent"), 50);
	assert_int_equal(integer(object, "max_token_ms"), 2000);
	assert_int_equal(integer(object, "max_pin_ms"), 24 * 3600 * 1000);
	assert_int_equal(integer(object, "load_stall_ms"), 10000);
	assert_int_equal(integer(object, "load_least_rate"), 4 << 20);
	assert_int_equal(integer(object, "max_load_s"), 600);
	assert_int_equal(integer(object, "passes_under_way"), 0);
	assert_int_equal(integer(object, "passes_under_way_max"), 4);
	assert_int_equal(integer(object, "n_loads"), 0);
	assert_int_equal(integer(object, "max_loads"), 8);
	assert_int_equal(integer(object, "max_domain_loads"), 2);
	json_decref(object);
}

static void test_limits_are_said_before_there_is_work(void **state)
{
	struct ctl_answer a;

	RUN(*state, &a, "status");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "  streams    0 B of 4.0 GiB of device arenas");
	assert_says(a.out, "  segments   0 of passes, 5 ms at most where others wait; ");
	assert_says(a.out, "  under way  0 of 4 passes, ");
	assert_says(a.out, "  weights    0 B of ");
	assert_says(a.out, "  loads      0 of 8 under way; for one user 2, ");
	assert_says(a.out, "  load ends  after 10.0 s without a byte; where another finds no place "
			   "below 4.0 MiB a second or after 10 min 0 s\n");
	assert_null(strstr(a.out, "  passes     "));
}

static void test_an_empty_list_says_so(void **state)
{
	static const char *const lists[][2] = {
		{"sessions", "no sessions\n"},
		{"models", "no models\n"},
		{"tree", "no nodes\n"},
		{"pins", "no pins\n"},
	};
	struct ctl_answer a;

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		json_t *object = ASK(*state, 0, lists[i][0]);

		assert_int_equal(json_object_size(object), 1);
		json_decref(object);
		RUN(*state, &a, lists[i][0]);
		assert_int_equal(a.status, 0);
		assert_string_equal(a.out, lists[i][1]);
	}
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
	assert_says(a.out, "computed backend\n");
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

static void test_pins_list_what_holds_and_how_long(void **state)
{
	struct ctl_fixture *f = *state;
	json_int_t node = find_node(f, 'w');
	json_t *object, *pin;
	struct ctl_answer a;
	char word[24];

	snprintf(word, sizeof(word), "%d", (int)node);
	json_decref(ASK(f, 0, "pin", word, "--for", "10m"));
	object = ASK(f, 0, "pins");
	assert_int_equal(json_array_size(json_object_get(object, "pins")), 1);
	pin = json_array_get(json_object_get(object, "pins"), 0);
	assert_int_equal(integer(pin, "node"), node);
	assert_int_equal(integer(pin, "n_tokens"), strlen(CTL_TRUNK CTL_SECOND));
	assert_in_range(integer(pin, "left_ns"), 1, 600 * INT64_C(1000000000));
	RUN(f, &a, "pins");
	assert_int_equal(a.status, 0);
	assert_says(a.out, "pin node user");
	assert_says(a.out, " 9 min ");
	assert_says(a.out, " ctl\n");
	snprintf(word, sizeof(word), "%d", (int)integer(pin, "pin"));
	json_decref(ASK(f, 0, "unpin", word));
	RUN(f, &a, "pins");
	assert_string_equal(a.out, "no pins\n");
	json_decref(object);
}

static void test_pins_name_models_as_tree_and_evict_take_them(void **state)
{
	static const char name[] = "a-model-whose-name-is-longer-than-a-cell-of-a-table-is";
	struct ctl_fixture *f = *state;
	struct coppice_seq *seq = open_another(f, name);
	struct ctl_answer a;
	uint64_t pin;

	ctl_fixture_compute(f, seq, &(const uint32_t){1}, 1);
	assert_int_equal(coppice_seq_pin(seq, UINT64_C(600000000000), &pin), 0);
	RUN(f, &a, "pins");
	assert_string_equal(strtok(strrchr(a.out, ' ') + 1, "\n"), name);
	json_decref(ASK(f, 0, "tree", "--model", name));
	json_decref(ASK(f, 0, "evict", "--model", name));
	coppice_seq_close(seq);
}

static void test_evict_ends_pins_where_that_is_asked_for(void **state)
{
	struct ctl_fixture *f = *state;
	struct ctl_answer a;
	json_t *object;
	char word[24];

	ctl_fixture_close_seqs(f);
	snprintf(word, sizeof(word), "%d", (int)find_node(f, 'w'));
	json_decref(ASK(f, 0, "pin", word, "--for", "10m"));
	json_decref(ASK(f, 0, "evict"));
	assert_int_equal(count_tokens(f), strlen(CTL_TRUNK CTL_SECOND));
	RUN(f, &a, "status");
	assert_says(a.out, "  pinned     ");
	assert_says(a.out, " pins at most for one user, each for ");
	assert_says(a.out, "  share      ");
	assert_says(a.out, " for who has less than is left\n");
	object = ASK(f, 0, "evict", "--pinned");
	assert_true(integer(object, "n_pages") > 0);
	assert_int_equal(integer(object, "n_pins"), 1);
	json_decref(object);
	assert_int_equal(count_tokens(f), 0);
	RUN(f, &a, "pins");
	assert_string_equal(a.out, "no pins\n");
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
	assert_string_equal(a.err, "coppicectl: There is no pin 987654321: it may be over.\n");
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

static void test_a_time_is_told_in_the_unit_that_was_typed(void **state)
{
	static const char *const times[][2] = {
		{"48h", "at most 24 h (max_pin_ms), not for 48 h."},
		{"2880m", "at most 1440 min (max_pin_ms), not for 2880 min."},
		{"100000", "at most 86400 s (max_pin_ms), not for 100000 s."},
		{"2d", "at most 1 d (max_pin_ms), not for 2 d."},
	};
	struct ctl_answer a;
	char node[24];

	snprintf(node, sizeof(node), "%d", (int)find_node(*state, 'I'));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		ctl_run_as(getuid(), *state, &a,
			   (const char *const[]){"pin", node, "--for", times[i][0], NULL});
		assert_int_equal(a.status, 1);
		assert_says(a.err, times[i][1]);
	}
}

/* Another user than the daemon's; 0: there is none to become. */
static uid_t somebody_else(void)
{
	const struct passwd *nobody = getpwnam("nobody");

	return getuid() == 0 && nobody ? nobody->pw_uid : 0;
}

static void test_other_users_may_not_pin_evict_or_drain(void **state)
{
	uid_t uid = somebody_else();
	struct ctl_answer a;
	char node[24];

	if (uid == 0)
		skip();
	snprintf(node, sizeof(node), "%d", (int)find_node(*state, 'I'));
	ctl_run_as(uid, *state, &a, (const char *const[]){"pin", node, "--for", "1m", NULL});
	assert_int_equal(a.status, 1);
	assert_says(a.err, "coppicectl: ");
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

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, ctl_fixture_new, ctl_fixture_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DAEMON(test_status_counts_what_was_computed),
		WITH_DAEMON(test_weights_take_half_of_the_memory_and_a_user_three_quarters_of_it),
		WITH_DAEMON(test_status_reads_as_text),
		WITH_DAEMON(test_tree_is_drawn),
		WITH_DAEMON(test_tree_goes_as_deep_as_asked),
		WITH_DAEMON(test_tree_shows_the_model_asked_for),
		WITH_DAEMON(test_tree_of_an_unknown_model_is_refused),
		WITH_DAEMON(test_tree_of_a_model_without_nodes_is_empty),
		WITH_DAEMON(test_tree_prints_ids_that_are_no_text_as_numbers),
		WITH_DAEMON(test_tree_quotes_names),
		WITH_DAEMON(test_tree_json_links_children_to_parents),
		WITH_DAEMON(test_sessions_list_this_process),
		WITH_DAEMON(test_sessions_read_as_text),
		WITH_DAEMON(test_what_a_user_may_have_is_said),
		WITH_DAEMON(test_coppicectl_does_not_list_itself),
		cmocka_unit_test_setup_teardown(test_limits_are_said_before_there_is_work,
						ctl_fixture_new_empty, ctl_fixture_free),
		cmocka_unit_test_setup_teardown(test_an_empty_list_says_so, ctl_fixture_new_empty,
						ctl_fixture_free),
		WITH_DAEMON(test_models_say_how_they_are_split),
		WITH_DAEMON(test_pin_keeps_a_path_from_eviction),
		WITH_DAEMON(test_pins_list_what_holds_and_how_long),
		WITH_DAEMON(test_pins_name_models_as_tree_and_evict_take_them),
		WITH_DAEMON(test_evict_ends_pins_where_that_is_asked_for),
		WITH_DAEMON(test_evict_stops_at_the_pages_asked_for),
		WITH_DAEMON(test_evict_leaves_what_is_used),
		WITH_DAEMON(test_drain_refuses_new_sequences_until_off),
		WITH_DAEMON(test_unknown_node_and_pin_are_refused),
		WITH_DAEMON(test_unknown_model_is_refused),
		WITH_DAEMON(test_too_long_a_pin_is_refused),
		WITH_DAEMON(test_a_time_is_told_in_the_unit_that_was_typed),
		WITH_DAEMON(test_other_users_may_not_pin_evict_or_drain),
		WITH_DAEMON(test_other_users_see_their_own_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
