/*
 * ctl_words_test.c - what coppicectl makes of a command line, and what it says where nothing comes
 * of it.
 */
#include "ctl_ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

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
		{"--so", "/tmp/s", "status"},
		{"--intervall=1s", "top"},
		{"-x", "status"},
		{"tree", "--depth", "all"},
		{"sessions", "--depth", "1"},
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
		{"top", "--count", "0"},
		{"status", "--socket="},
		{"evict", "--model="},
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

/* On a bad command line the sentence has the words. */
static void assert_complains(const char *const *line, const char *words)
{
	struct ctl_fixture nowhere = {.socket = "/tmp/no-such-folder/sock"};
	struct ctl_answer a;

	ctl_run_as(getuid(), &nowhere, &a, line);
	assert_int_equal(a.status, 2);
	assert_string_equal(a.out, "");
	assert_says(a.err, words);
}

#define LINE(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_what_was_meant_is_asked(void **state)
{
	(void)state;
	assert_complains(LINE("stauts"), "there is no verb \"stauts\": did you mean status?\n");
	assert_complains(LINE("sesions"), "did you mean sessions?\n");
	assert_complains(LINE("dance"), "there is no verb \"dance\": see --help\n");
	assert_complains(LINE("top", "--so=x"), "--so is no option: did you mean --socket?\n");
	assert_complains(LINE("top", "--cuont", "1"), "did you mean --count?\n");
	assert_complains(LINE("pin", "1", "--for"), "--for lacks its TIME\n");
}

static void test_what_has_no_name_is_said(void **state)
{
	(void)state;
	assert_complains(LINE("status", "--socket="), "--socket has no name behind it\n");
	assert_complains(LINE("evict", "--model", ""), "--model has no name behind it\n");
}

static void test_help_is_in_the_order_it_is_read(void **state)
{
	static const char *const order[] = {
		"Usage: coppicectl",
		"To look:",
		"status",
		"tree",
		"sessions",
		"models",
		"pins",

		"top",
		"To act:",
		"pin NODE",
		"unpin PIN",
		"evict",
		"drain",
		"--socket",
		"--json",
		"--model",
		"--depth",
		"--interval",
		"--count",
		"--for",
		"--pages",
		"--off",
		"--help",
		"--version",
	};
	struct ctl_fixture nowhere = {.socket = "/tmp/no-such-folder/sock"};
	struct ctl_answer a;
	const char *at = a.out;

	(void)state;
	RUN(&nowhere, &a, "--help");
	assert_int_equal(a.status, 0);
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		at = strstr(at, order[i]);
		if (!at)
			fail_msg("no %s, or not there: %s", order[i], a.out);
	}
	for (char *line = strtok(a.out, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80);
}

static void test_what_cannot_be_written_is_a_failure(void **state)
{
	struct ctl_fixture *f = *state;
	char line[512];
	int status;

	snprintf(line, sizeof(line), "%s --socket %s status >/dev/full 2>&1", COPPICECTL_PATH,
		 f->socket);
	status = system(line);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_absent_daemon_is_said),
		cmocka_unit_test(test_no_socket_is_said),
		cmocka_unit_test(test_bad_command_lines_end_with_2),
		cmocka_unit_test(test_what_was_meant_is_asked),
		cmocka_unit_test(test_what_has_no_name_is_said),
		cmocka_unit_test(test_help_is_in_the_order_it_is_read),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_written_is_a_failure,
						ctl_fixture_new_empty, ctl_fixture_free),
	};

	return cmocka_run_group_tests_name("coppicectl's words", tests, NULL, NULL);
}
