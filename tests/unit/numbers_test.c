/* numbers_test.c - small numbers: the lowest free one first, against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "kvstore/base/numbers.h"

#define MOST 10000u

static void test_none_are_to_be_had_before_there_is_room(void **state)
{
	struct numbers n;
	(void)state;

	numbers_init(&n);
	assert_int_equal(numbers_take(&n), NUMBERS_NONE);
	assert_int_equal(numbers_reserve(&n, 100), 0);
	assert_int_equal(numbers_take(&n), NUMBERS_NONE);
	numbers_put(&n, 99);
	assert_true(numbers_is_free(&n, 99) && !numbers_is_free(&n, 98));
	assert_int_equal(numbers_take(&n), 99);
	assert_int_equal(numbers_take(&n), NUMBERS_NONE);
	numbers_done(&n);
}

/* As many as are taken, in more room than there was. */
static void test_room_grows_and_what_is_free_stays_so(void **state)
{
	struct numbers n;
	(void)state;

	numbers_init(&n);
	for (uint32_t room = 64; room <= MOST; room *= 2) {
		assert_int_equal(numbers_reserve(&n, room), 0);
		if (room > 64)
			numbers_put_run(&n, room / 2, room / 2);
		for (uint32_t i = 32; room == 64 && i < room; i++)
			numbers_put(&n, i);
	}
	for (uint32_t i = 32; i < 8192; i++)
		assert_int_equal(numbers_take(&n), i);
	assert_int_equal(numbers_take(&n), NUMBERS_NONE);
	numbers_done(&n);
}

static uint32_t lowest(const uint8_t *is_free)
{
	for (uint32_t i = 0; i < MOST; i++)
		if (is_free[i])
			return i;
	return NUMBERS_NONE;
}

static void test_the_lowest_free_is_taken(void **state)
{
	static uint8_t is_free[MOST];
	unsigned seed = (unsigned)time(NULL);
	struct numbers n;
	(void)state;

	printf("seed %u\n", seed);
	srandom(seed);
	numbers_init(&n);
	assert_int_equal(numbers_reserve(&n, MOST), 0);
	for (uint32_t i = 0; i < 20000; i++) {
		uint32_t number = (uint32_t)random() % MOST;
		if (random() % 2 && !is_free[number]) {
			numbers_put(&n, number);
			is_free[number] = 1;
			continue;
		}
		number = numbers_take(&n);
		assert_int_equal(number, lowest(is_free));
		if (number != NUMBERS_NONE)
			is_free[number] = 0;
	}
	numbers_done(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_are_to_be_had_before_there_is_room),
		cmocka_unit_test(test_room_grows_and_what_is_free_stays_so),
		cmocka_unit_test(test_the_lowest_free_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
