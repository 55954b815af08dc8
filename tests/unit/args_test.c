/*
 * args_test.c - options and words of a command line: options are spelled in full, what is wrong is
 * one sentence, and the table is there for people.
 */
#include "proto/cli/args.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct args_option table[] = {
	{NULL, 0, NULL, "What there is:"},
	{"pool", 256, "SIZE", "memory for KV"},
	{"socket", 's', "PATH", "where it listens, in a folder that all who may connect can enter"},
	{"json", 'j', NULL, "for programs"},
	{"depth", 'd', "N", "levels"},
	{"help", '?', NULL, "this text"},
	{NULL, 0, NULL, "And some more:"},
	{"a-name-that-is-long", 257, "VALUE", "behind it"},
	{"maybe", 259, "[N]", "with a number or without"},
	{"formerly", 258, NULL, NULL},
	{0},
};

#define BEGIN(...) \
	args_begin(table, (int)(sizeof((char *[]){"p", __VA_ARGS__}) / sizeof(char *)), \
		   (char *[]){"p", __VA_ARGS__})

static void assert_next(struct args *a, int key, const char *value)
{
	assert_int_equal(args_next(a), key);
	if (value)
		assert_string_equal(a->value, value);
	else
		assert_null(a->value);
}

static void assert_refused(struct args a, const char *why)
{
	int key;

	do
		key = args_next(&a);
	while (key > 0);
	assert_int_equal(key, -EINVAL);
	assert_string_equal(a.why, why);
}

static void test_options_and_words_come_in_their_order(void **state)
{
	struct args a = BEGIN("--pool=1G", "word", "--pool", "2G", "-j", "-s", "x", "-js/y", "-?",
			      "--json", "--", "--json", "-");
	(void)state;

	assert_next(&a, 256, "1G");
	assert_next(&a, ARGS_WORD, "word");
	assert_next(&a, 256, "2G");
	assert_next(&a, 'j', NULL);
	assert_next(&a, 's', "x");
	assert_next(&a, 'j', NULL);
	assert_next(&a, 's', "/y");
	assert_next(&a, '?', NULL);
	assert_next(&a, 'j', NULL);
	assert_next(&a, ARGS_WORD, "--json");
	assert_next(&a, ARGS_WORD, "-");
	assert_int_equal(args_next(&a), 0);
}

static void test_options_are_spelled_in_full(void **state)
{
	(void)state;
	assert_refused(BEGIN("--po=1G"), "--po is no option: did you mean --pool?");
	assert_refused(BEGIN("--json", "--soket", "x"),
		       "--soket is no option: did you mean --socket?");
	assert_refused(BEGIN("--hlep"), "--hlep is no option: did you mean --help?");
	assert_refused(BEGIN("--nothing-like-it=3"), "--nothing-like-it is no option: see --help");
	assert_refused(BEGIN("-jx"), "-x is no option: see --help");
	assert_refused(BEGIN("-s./s", "--po"), "--po is no option: did you mean --pool?");
}

static void test_an_old_name_works_and_is_not_offered(void **state)
{
	struct args a = BEGIN("--formerly");
	(void)state;

	assert_next(&a, 258, NULL);
	assert_refused(BEGIN("--formerl"), "--formerl is no option: see --help");
}

static void test_a_value_is_no_option(void **state)
{
	struct args a = BEGIN("--pool", "--po", "-s", "--po", "-js", "--po");
	(void)state;

	assert_next(&a, 256, "--po");
	assert_next(&a, 's', "--po");
	assert_next(&a, 'j', NULL);
	assert_next(&a, 's', "--po");
	assert_int_equal(args_next(&a), 0);
}

static void test_a_value_in_brackets_may_be_left_out(void **state)
{
	struct args a = BEGIN("--maybe", "3", "--maybe=3");
	(void)state;

	assert_next(&a, 259, NULL);
	assert_next(&a, ARGS_WORD, "3");
	assert_next(&a, 259, "3");
	assert_int_equal(args_next(&a), 0);
}

static void test_a_value_too_many_or_too_few_is_said(void **state)
{
	(void)state;
	assert_refused(BEGIN("--json=1"), "--json takes no value");
	assert_refused(BEGIN("--pool"), "--pool lacks its SIZE");
	assert_refused(BEGIN("-js"), "--socket lacks its PATH");
}

static void test_a_name_is_not_empty(void **state)
{
	struct args a = BEGIN("-s", "x", "--socket=", "-s", "");
	const char *name = NULL;
	(void)state;

	assert_next(&a, 's', "x");
	assert_int_equal(args_name(&a, &name), 0);
	for (int i = 0; i < 2; i++) {
		assert_next(&a, 's', "");
		assert_int_equal(args_name(&a, &name), -EINVAL);
		assert_string_equal(a.why, "--socket has no name behind it");
	}
	assert_string_equal(name, "x");
}

static void test_whole_numbers_have_limits(void **state)
{
	struct args a = BEGIN("-d", "7", "-d8", "-d", "-1", "-d", "x", "--depth=", "-d9999");
	uint64_t n = 0;
	(void)state;

	assert_next(&a, 'd', "7");
	assert_int_equal(args_whole(&a, 1, 7, &n), 0);
	assert_int_equal(n, 7);
	assert_next(&a, 'd', "8");
	assert_int_equal(args_whole(&a, 1, 7, &n), -EINVAL);
	assert_string_equal(a.why, "--depth takes a whole number from 1 to 7, not \"8\"");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(args_next(&a), 'd');
		assert_int_equal(args_whole(&a, 0, UINT64_MAX, &n), -EINVAL);
	}
	assert_string_equal(a.why, "--depth takes a whole number from 0, not \"\"");
	assert_next(&a, 'd', "9999");
	assert_int_equal(args_whole(&a, 0, UINT64_MAX, &n), 0);
}

static void test_the_table_is_printed_in_its_order(void **state)
{
	char *text;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);
	(void)state;

	assert_non_null(to);
	args_print(to, table);
	assert_int_equal(fclose(to), 0);
	assert_string_equal(
		text,
		"What there is:\n"
		"      --pool=SIZE            memory for KV\n"
		"  -s, --socket=PATH          where it listens, in a folder that all who may\n"
		"                             connect can enter\n"
		"  -j, --json                 for programs\n"
		"  -d, --depth=N              levels\n"
		"  -?, --help                 this text\n"
		"\n"
		"And some more:\n"
		"      --a-name-that-is-long=VALUE\n"
		"                             behind it\n"
		"      --maybe[=N]            with a number or without\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_and_words_come_in_their_order),
		cmocka_unit_test(test_options_are_spelled_in_full),
		cmocka_unit_test(test_an_old_name_works_and_is_not_offered),
		cmocka_unit_test(test_a_value_is_no_option),
		cmocka_unit_test(test_a_value_in_brackets_may_be_left_out),
		cmocka_unit_test(test_a_value_too_many_or_too_few_is_said),
		cmocka_unit_test(test_a_name_is_not_empty),
		cmocka_unit_test(test_whole_numbers_have_limits),
		cmocka_unit_test(test_the_table_is_printed_in_its_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
