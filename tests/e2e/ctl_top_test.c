/*
 * ctl_top_test.c - coppicectl top, on a terminal and off it, against a real daemon with a real
 * client.
 */
#include "ctl_ask.h"
#include "proto/clock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

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

/* Of the users that this machine has. */
static uid_t user_of_the_longest_name(void)
{
	uid_t found = getuid();
	size_t most = 0;

	setpwent();
	for (const struct passwd *user; (user = getpwent());)
		if (strlen(user->pw_name) > most) {
			most = strlen(user->pw_name);
			found = user->pw_uid;
		}
	endpwent();
	return found;
}

/* A session of a program with a longer name than is shown, until it is killed. */
static pid_t stay_as(const struct ctl_fixture *f, uid_t uid)
{
	struct coppice *c;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		program_invocation_short_name = "with-many-letters";
		if ((getuid() == 0 && setresuid(uid, uid, uid) < 0) ||
		    coppice_connect(&c, f->socket) < 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* Bytes are columns: the view of this test has no others. */
static void test_top_fits_80_columns(void **state)
{
	pid_t pid = stay_as(*state, user_of_the_longest_name());
	struct ctl_answer a;

	RUN(*state, &a, "top", "--count", "2", "--interval", "20ms");
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(a.status, 0);
	assert_says(a.out, " with-many-letter ");
	for (char *line = strtok(a.out, "\n"); line; line = strtok(NULL, "\n"))
		if (strlen(line) > 80)
			fail_msg("%zu columns: %s", strlen(line), line);
}

/* Computes a token now and then, until it is told to end. */
struct work {
	struct ctl_fixture *f;
	pthread_t thread;
	atomic_bool ends;
	uint32_t n_tokens;
	uint64_t ns;
};

static void *work_run(void *arg)
{
	struct work *work = arg;
	uint64_t begin_ns = clock_now_ns();

	for (; !atomic_load(&work->ends); work->n_tokens++) {
		ctl_fixture_compute(work->f, work->f->seqs[0], &(uint32_t){'x'}, 1);
		usleep(2000);
	}
	work->ns = clock_now_ns() - begin_ns;
	return NULL;
}

/* The number of a row's column, from the right, 0 the last: "1,234". */
static double from_the_right(const char *row, int column)
{
	const char *at = row + strcspn(row, "\n");
	double n = 0;

	for (; column >= 0; column--) {
		while (at > row && at[-1] == ' ')
			at--;
		while (at > row && at[-1] != ' ')
			at--;
	}
	for (; *at == ',' || (*at >= '0' && *at <= '9'); at++)
		n = *at == ',' ? n : 10 * n + (*at - '0');
	return n;
}

/* What somebody computes meanwhile, by the second; each token is an extension and two layers. */
static void test_top_shows_rates_of_what_goes_on(void **state)
{
	struct work work = {.f = *state};
	double entries, computed, expected;
	struct ctl_answer a;
	const char *row;

	assert_int_equal(pthread_create(&work.thread, NULL, work_run, &work), 0);
	RUN(*state, &a, "top", "--count", "1", "--interval", "500ms");
	atomic_store(&work.ends, true);
	pthread_join(work.thread, NULL);
	assert_int_equal(a.status, 0);
	row = strstr(a.out, " computed/s\n");
	assert_non_null(row);
	row += strlen(" computed/s\n");
	entries = from_the_right(row, 2);
	computed = from_the_right(row, 0);
	expected = work.n_tokens * 1e9 / (double)work.ns;
	assert_true(computed > expected / 2 && computed < expected * 2);
	assert_float_equal(entries / computed, 3, 0.5);
}

/* The client computed all before the first look, and nothing since. */
static void test_top_shows_rates_and_no_sums(void **state)
{
	struct ctl_answer a;

	RUN(*state, &a, "top", "--count", "1", "--interval", "20ms");
	assert_says(a.out, " entries/s matched/s computed/s\n");
	assert_says(a.out, "         0         0          0\n");
	assert_null(strstr(a.out, "coppicectl"));
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

static int count_lines(const char *text, const char *end)
{
	int n = 0;

	for (; text < end; text++)
		n += *text == '\n';
	return n;
}

/* Reads from a terminal until what is seen, for 10 s at most. */
static bool terminal_shows(int fd, const char *what, char seen[CTL_OUTPUT_BYTES])
{
	size_t n = 0;
	ssize_t r;

	while (n + 1 < CTL_OUTPUT_BYTES) {
		if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10000) != 1)
			return false;
		r = read(fd, seen + n, CTL_OUTPUT_BYTES - 1 - n);
		if (r <= 0)
			return false;
		n += (size_t)r;
		seen[n] = '\0';
		if (strstr(seen, what))
			return true;
	}
	return false;
}

static bool terminal_says(int fd, const char *what)
{
	char seen[CTL_OUTPUT_BYTES];

	return terminal_shows(fd, what, seen);
}

/* Starts top on a terminal of its own; size NULL: it has none. */
static pid_t top_on_terminal_of(struct ctl_fixture *f, const struct winsize *size, int *ret_fd)
{
	pid_t pid = forkpty(ret_fd, NULL, NULL, size);

	assert_true(pid >= 0);
	if (pid == 0) {
		execl(COPPICECTL_PATH, "coppicectl", "--socket", f->socket, "top", NULL);
		_exit(127);
	}
	return pid;
}

static pid_t top_on_terminal(struct ctl_fixture *f, int *ret_fd)
{
	return top_on_terminal_of(f, NULL, ret_fd);
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

static void test_top_has_a_line_of_keys_and_obeys_them(void **state)
{
	int fd, status;
	pid_t pid = top_on_terminal(*state, &fd);

	assert_true(terminal_says(fd, "q quit   space look now   + faster   - slower"));
	assert_int_equal(write(fd, "+", 1), 1);
	assert_true(terminal_says(fd, "(every 0.5 s)"));
	assert_int_equal(write(fd, "-", 1), 1);
	assert_true(terminal_says(fd, "(every 1 s)"));
	assert_int_equal(write(fd, "q", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(fd);
}

/* The sessions that have no room are counted. Below the line of keys there is one for the cursor,
 * else the first line would be lost. */
static void test_top_fits_the_terminals_lines(void **state)
{
	struct ctl_fixture *f = *state;
	char seen[CTL_OUTPUT_BYTES];
	struct coppice *more[6];
	int fd, status;
	pid_t pid;

	for (size_t i = 0; i < 6; i++)
		assert_int_equal(coppice_connect(&more[i], f->socket), 0);
	pid = top_on_terminal_of(f, &(struct winsize){.ws_row = 12, .ws_col = 80}, &fd);
	assert_true(terminal_shows(fd, "q quit", seen));
	assert_non_null(strstr(seen, "and 5 more"));
	assert_int_equal(count_lines(seen, strstr(seen, "q quit")), 12 - 2);
	assert_int_equal(write(fd, "q", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (size_t i = 0; i < 6; i++)
		coppice_close(more[i]);
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

#define WITH_DAEMON(test) cmocka_unit_test_setup_teardown(test, ctl_fixture_new, ctl_fixture_free)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DAEMON(test_top_looks_as_often_as_asked),
		WITH_DAEMON(test_top_fits_80_columns),
		WITH_DAEMON(test_top_shows_rates_and_no_sums),
		WITH_DAEMON(test_top_shows_rates_of_what_goes_on),
		WITH_DAEMON(test_top_json_is_an_object_a_line),
		WITH_DAEMON(test_top_has_a_line_of_keys_and_obeys_them),
		WITH_DAEMON(test_top_fits_the_terminals_lines),
		WITH_DAEMON(test_top_ends_with_q),
		WITH_DAEMON(test_top_ends_with_control_c),
		WITH_DAEMON(test_top_says_when_the_daemon_goes),
	};

	return cmocka_run_group_tests_name("coppicectl top", tests, NULL, NULL);
}
