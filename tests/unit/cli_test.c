/*
 * cli_test.c - what the command lines of all programs have in common: which word was meant, and
 * options that are spelled in full.
 */
#include "proto/cli/flags.h"
#include "proto/cli/nearest.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char *meant(const char *typed)
{
	static const char *const words[] = {"policy", "pool", "socket", "socket_mode", "max_lanes"};
	struct nearest nearest;

	nearest_begin(&nearest, typed, strlen(typed));
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		nearest_offer(&nearest, words[i]);
	return nearest.word;
}

static void test_one_letter_too_few_too_many_wrong_or_swapped_is_near(void **state)
{
	(void)state;
	assert_string_equal(meant("pol"), "pool");
	assert_string_equal(meant("pooll"), "pool");
	assert_string_equal(meant("pook"), "pool");
	assert_string_equal(meant("sokcet"), "socket");
	assert_string_equal(meant("max_laines"), "max_lanes");
}

static void test_the_beginning_of_a_word_is_near(void **state)
{
	(void)state;
	assert_string_equal(meant("polic"), "policy");
	assert_string_equal(meant("max"), "max_lanes");
	assert_string_equal(meant("soc"), "socket");
}

static void test_what_is_like_nothing_is_near_to_nothing(void **state)
{
	char longer[NEAREST_WORD_MAX + 2];
	(void)state;

	memset(longer, 'p', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	assert_null(meant(""));
	assert_null(meant("p"));
	assert_null(meant("threads"));
	assert_null(meant(longer));
}

static const struct argp_option options[] = {
	{"pool", 256, "SIZE", 0, "", 0},
	{"socket", 's', "PATH", 0, "", 0},
	{"json", 'j', NULL, 0, "", 0},
	{"depth", 'd', "N", OPTION_ARG_OPTIONAL, "", 0},
	{0},
};

#define CHECK(why, ...) \
	flags_check(options, (int)(sizeof((char *[]){"p", __VA_ARGS__}) / sizeof(char *)), \
		    (char *[]){"p", __VA_ARGS__}, why, sizeof(why))

static void test_options_are_spelled_in_full(void **state)
{
	char why[FLAGS_WHY_BYTES];
	(void)state;

	assert_int_equal(CHECK(why, "--pool=1G", "--pool", "1G", "--json", "--help", "word"), 0);
	assert_int_equal(CHECK(why, "--po=1G"), -EINVAL);
	assert_string_equal(why, "--po is no option: did you mean --pool?");
	assert_int_equal(CHECK(why, "--json", "--soket", "x"), -EINVAL);
	assert_string_equal(why, "--soket is no option: did you mean --socket?");
	assert_int_equal(CHECK(why, "--hlep"), -EINVAL);
	assert_string_equal(why, "--hlep is no option: did you mean --help?");
	assert_int_equal(CHECK(why, "--nothing-like-it"), -EINVAL);
	assert_string_equal(why, "--nothing-like-it is no option: see --help");
}

static void test_a_value_is_no_option(void **state)
{
	char why[FLAGS_WHY_BYTES];
	(void)state;

	assert_int_equal(CHECK(why, "--pool", "--po"), 0);
	assert_int_equal(CHECK(why, "-s", "--po"), 0);
	assert_int_equal(CHECK(why, "-js", "--po"), 0);
	assert_int_equal(CHECK(why, "-s./s", "--po"), -EINVAL);
	assert_int_equal(CHECK(why, "--depth", "--po"), -EINVAL);
	assert_int_equal(CHECK(why, "--", "--po"), 0);
	assert_int_equal(CHECK(why, "-"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_letter_too_few_too_many_wrong_or_swapped_is_near),
		cmocka_unit_test(test_the_beginning_of_a_word_is_near),
		cmocka_unit_test(test_what_is_like_nothing_is_near_to_nothing),
		cmocka_unit_test(test_options_are_spelled_in_full),
		cmocka_unit_test(test_a_value_is_no_option),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
