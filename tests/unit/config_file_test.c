/*
 * config_file_test.c - the config file as a file: that it is there, its lines, and what stands in
 * it twice. What keys and values may be: config_test.c.
 */
#include "config_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_line_too_long_is_an_error(void **state)
{
	char text[1024];

	(void)state;
	memset(text, 'a', sizeof(text));
	memcpy(text, "[coppiced]\nsocket = /", 21);
	strcpy(text + 900, "\nthreads = x\n");
	assert_says(read_text(text), ":2: the line is longer than");
	assert_says(read_text(text), ":3: threads");
}

static void all_errors_are_said_at_once(void **state)
{
	struct reading *reading = read_text("[coppiced]\nthreads = x\nloop = y\n");

	(void)state;
	assert_says(reading, ":2: threads");
	assert_says(reading, ":3: loop");
}

static void a_key_that_stands_twice_is_an_error(void **state)
{
	const struct reading *reading = read_text("[coppiced]\npool = 1G\nloop = epoll\npool = 2G\n"
						  "batch_window = never\nbatch_hold = never\n");

	(void)state;
	assert_int_equal(reading->r, -EINVAL);
	assert_says(reading, ":4: pool: pool stands on line 2 already");
	assert_says(reading, ":6: batch_hold: batch_window stands on line 5 already");
}

static void a_named_file_must_be_there(void **state)
{
	(void)state;
	assert_int_equal(READ((char *)"--config=/nonexistent/x.conf")->r, -EINVAL);
	assert_says(READ((char *)"--config=/nonexistent/x.conf"), "cannot be read: No such file");
}

static void an_unreadable_file_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(READ((char *)"--config=/tmp")->r, -EINVAL);
	assert_says(READ((char *)"--config=/tmp"), "/tmp: cannot be read");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_too_long_is_an_error),
		cmocka_unit_test(all_errors_are_said_at_once),
		cmocka_unit_test(a_key_that_stands_twice_is_an_error),
		cmocka_unit_test(a_named_file_must_be_there),
		cmocka_unit_test(an_unreadable_file_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
