/*
 * first_app_test.c - the apps that client/README.md begins with, as they stand there: they run,
 * and say what is wrong where there is no daemon or no model. The one that computes its layers
 * finds its prompt the second time. argv[1] is the daemon's program.
 */
#include "control_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* What it prints, on either stream; its exit status. */
static int run(const char *command, const char *socket, char *text, size_t bytes)
{
	FILE *out;
	size_t n;

	assert_int_equal(setenv("COPPICE_SOCKET", socket, 1), 0);
	out = popen(command, "r");
	assert_non_null(out);
	n = fread(text, 1, bytes - 1, out);
	text[n] = 0;
	return WEXITSTATUS(pclose(out));
}

#define FIRST_APP FIRST_APP_PATH " 2>&1"

static void the_first_app_finds_its_prompt_the_second_time(void **state)
{
	struct harness *h = *state;
	char text[400];

	assert_int_equal(run(FIRST_APP, h->socket, text, sizeof(text)), 0);
	assert_string_equal(text, "0 of 4 tokens were cached, 4 computed\n");
	assert_int_equal(run(FIRST_APP, h->socket, text, sizeof(text)), 0);
	assert_string_equal(text, "3 of 4 tokens were cached, 1 computed\n");
}

static void the_first_app_says_that_there_is_no_daemon(void **state)
{
	char text[400];

	(void)state;
	assert_int_equal(run(FIRST_APP, "/nowhere/at/all", text, sizeof(text)), 1);
	assert_non_null(strstr(text, "there is no socket /nowhere/at/all: start coppiced"));
}

static void the_whole_agent_continues_a_prompt(void **state)
{
	struct harness *h = *state;
	char text[400];
	int status = run(WHOLE_AGENT_PATH " " MODEL_DIR " 'And the LORD said' 2>&1", h->socket,
			 text, sizeof(text));

	if (status == 1 && strstr(text, "holds no weights"))
		skip(); /* a backend that runs no programs */
	assert_int_equal(status, 0);
	assert_int_equal(strlen(text), 64);
	text[35] = 0;
	assert_string_equal(text, " unto Moses, Go up upon the mountai");
}

static void the_whole_agent_has_no_more_than_40_lines(void **state)
{
	FILE *file = fopen(WHOLE_AGENT_SOURCE, "re");
	uint32_t n = 0;
	int c;

	(void)state;
	assert_non_null(file);
	while ((c = getc(file)) != EOF)
		n += c == '\n';
	fclose(file);
	assert_in_range(n, 1, 40);
}

static void the_whole_agent_says_what_it_lacks(void **state)
{
	struct harness *h = *state;
	char text[400];

	assert_int_equal(run(WHOLE_AGENT_PATH " 2>&1", h->socket, text, sizeof(text)), 2);
	assert_string_equal(text, "whole_agent: usage: whole_agent FOLDER PROMPT\n");
	assert_int_equal(run(WHOLE_AGENT_PATH " /no/such/model x 2>&1", h->socket, text,
			     sizeof(text)),
			 2);
	assert_non_null(strstr(text, "No such file"));
	assert_int_equal(run(WHOLE_AGENT_PATH " / x 2>&1", h->socket, text, sizeof(text)), 1);
	assert_non_null(strstr(text, "coppice_weights_open"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_CASE(epoll, the_first_app_finds_its_prompt_the_second_time),
		HARNESS_CASE(epoll, the_whole_agent_continues_a_prompt),
		HARNESS_CASE(epoll, the_whole_agent_says_what_it_lacks),
		cmocka_unit_test(the_whole_agent_has_no_more_than_40_lines),
		cmocka_unit_test(the_first_app_says_that_there_is_no_daemon),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
