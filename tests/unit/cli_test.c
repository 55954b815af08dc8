/* cli_test.c - which word was meant by somebody who typed another. */
#include "proto/cli/nearest.h"

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

static void test_of_two_as_near_the_first_is_meant(void **state)
{
	struct nearest nearest;
	(void)state;

	nearest_begin(&nearest, "loo", 3);
	nearest_offer(&nearest, "loop");
	nearest_offer(&nearest, "look");
	assert_string_equal(nearest.word, "loop");
}

/* A third of the letters, and never more than one of a short word. */
static void test_so_many_letters_may_be_wrong(void **state)
{
	(void)state;
	assert_string_equal(meant("sakcet_mude"), "socket_mode");
	assert_null(meant("sakcet_mudo"));
	assert_null(meant("paal"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_letter_too_few_too_many_wrong_or_swapped_is_near),
		cmocka_unit_test(test_the_beginning_of_a_word_is_near),
		cmocka_unit_test(test_what_is_like_nothing_is_near_to_nothing),
		cmocka_unit_test(test_of_two_as_near_the_first_is_meant),
		cmocka_unit_test(test_so_many_letters_may_be_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
