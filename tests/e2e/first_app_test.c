/*
 * first_app_test.c - the app that client/README.md begins with, as it stands there: it runs, finds
 * its prompt the second time, and says what is wrong where there is no daemon. argv[1] is the
 * daemon's program.
 */
#include "control_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* What it prints, on either stream; its exit status. */
static int run(const char *socket, char *text, size_t bytes)
{
	FILE *out;
	size_t n;

	assert_int_equal(setenv("COPPICE_SOCKET", socket, 1), 0);
	out = popen(FIRST_APP_PATH " 2>&1", "r");
	assert_non_null(out);
	n = fread(text, 1, bytes - 1, out);
	text[n] = 0;
	return WEXITSTATUS(pclose(out));
}

static void the_first_app_finds_its_prompt_the_second_time(void **state)
{
	struct harness *h = *state;
	char text[400];

	assert_int_equal(run(h->socket, text, sizeof(text)), 0);
	assert_string_equal(text, "0 of 4 tokens were cached, 4 computed\n");
	assert_int_equal(run(h->socket, text, sizeof(text)), 0);
	assert_string_equal(text, "3 of 4 tokens were cached, 1 computed\n");
}

static void the_first_app_says_that_there_is_no_daemon(void **state)
{
	char text[400];

	(void)state;
	assert_int_equal(run("/nowhere/at/all", text, sizeof(text)), 1);
	assert_non_null(strstr(text, "there is no socket /nowhere/at/all: start coppiced"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HARNESS_CASE(epoll, the_first_app_finds_its_prompt_the_second_time),
		cmocka_unit_test(the_first_app_says_that_there_is_no_daemon),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
