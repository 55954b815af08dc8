/* text_test.c - what coppicectl prints of others' words. */
#include "client/ctl/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_nothing_that_a_terminal_obeys_is_printed(void **state)
{
	char text[TEXT_QUOTED_BYTES];
	(void)state;

	assert_string_equal(text_quoted(text, sizeof(text), "llama-3 8B"), "llama-3 8B");
	assert_string_equal(text_quoted(text, sizeof(text), "a\033[31m\x9b\r\n\x7f"),
			    "a\\x1b[31m\\x9b\\x0d\\n\\x7f");
	assert_string_equal(text_quoted(text, sizeof(text), "\"\\"), "\\\"\\\\");
}

static void test_what_does_not_fit_is_left_off(void **state)
{
	char name[128], text[TEXT_QUOTED_BYTES], few[6];
	(void)state;

	memset(name, 1, 127);
	name[127] = 0;
	assert_int_equal(strlen(text_quoted(text, sizeof(text), name)), 4 * 127);
	assert_string_equal(text_quoted(few, sizeof(few), "ab\x01\x01"), "ab");
	assert_string_equal(text_quoted(few, sizeof(few), "a\x01\x01"), "a\\x01");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_that_a_terminal_obeys_is_printed),
		cmocka_unit_test(test_what_does_not_fit_is_left_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
