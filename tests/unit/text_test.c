/* text_test.c - what coppicectl prints of others' words. */
#include "client/ctl/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
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

static const char *shown(const uint32_t *ids, size_t n, bool goes_on)
{
	static char text[TEXT_RUN_BYTES];

	return text_tokens(text, sizeof(text),
			   &(struct text_run){.ids = ids,
					      .n = n,
					      .is_text = text_is_text(ids, n),
					      .goes_on = goes_on});
}

static void test_ids_that_are_no_text_are_numbers(void **state)
{
	static const uint32_t greek[] = {0xce, 0xb1, '\n', '\t', '"'}, small[] = {7, 'a', 'b'};
	static const uint32_t high[] = {0xff, 'a'}, large[] = {'a', 256, 128255};
	(void)state;

	assert_string_equal(shown(greek, 5, true), "\"\\xce\\xb1\\n\\x09\\\"\"...");
	assert_string_equal(shown(small, 3, false), "7 97 98");
	assert_string_equal(shown(high, 2, false), "255 97");
	assert_string_equal(shown(large, 3, true), "97 256 128255...");
}

static void test_24_ids_of_any_size_fit(void **state)
{
	uint32_t ids[24];
	const char *text;
	(void)state;

	for (size_t i = 0; i < 24; i++)
		ids[i] = UINT32_MAX - 9;
	text = shown(ids, 24, true);
	assert_int_equal(strlen(text), 24 * 11 - 1 + 3);
	assert_string_equal(text + strlen(text) - 6, "286...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_that_a_terminal_obeys_is_printed),
		cmocka_unit_test(test_what_does_not_fit_is_left_off),
		cmocka_unit_test(test_ids_that_are_no_text_are_numbers),
		cmocka_unit_test(test_24_ids_of_any_size_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
