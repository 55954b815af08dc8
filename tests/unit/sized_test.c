/*
 * sized_test.c - structs of an app that knows another header: smaller or larger than the library's.
 */
#include "client/lib/base/sized.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* As this library knows it, of which apps have any part, or more. */
struct known {
	size_t size;
	uint64_t a, b;
};

struct newer {
	struct known known;
	uint64_t more;
};

static const struct sized_caller caller = {81, "sized_test"};
static const struct known ours = {.size = 99, .a = 1, .b = 2};

static void assert_filled(size_t size, struct newer expected)
{
	struct newer theirs;

	memset(&theirs, 0xff, sizeof(theirs));
	theirs.known.size = size;
	expected.known.size = size;
	assert_int_equal(sized_fill(caller, &theirs, &ours, sizeof(ours)), 0);
	assert_memory_equal(&theirs, &expected, sizeof(theirs));
}

static void what_is_filled_is_as_large_as_it_says(void **state)
{
	const uint64_t untouched = UINT64_MAX;

	(void)state;
	assert_filled(sizeof(size_t), (struct newer){{0, untouched, untouched}, untouched});
	assert_filled(sizeof(size_t) + 8, (struct newer){{0, 1, untouched}, untouched});
	assert_filled(sizeof(struct known), (struct newer){{0, 1, 2}, untouched});
	assert_filled(sizeof(struct newer), (struct newer){{0, 1, 2}, 0});
}

static void what_says_no_size_is_not_filled(void **state)
{
	(void)state;
	for (size_t size = 0; size < sizeof(size_t); size++) {
		struct known theirs = {size, 7, 7};

		assert_int_equal(sized_fill(caller, &theirs, &ours, sizeof(ours)), -EINVAL);
		assert_int_equal(theirs.size, size);
		assert_int_equal(theirs.a, 7);
	}
}

static void what_is_read_may_be_larger_where_that_says_nothing(void **state)
{
	struct newer theirs = {{sizeof(theirs), 1, 2}, 0};

	(void)state;
	assert_int_equal(sized_check(caller, &theirs, sizeof(ours)), 0);
	theirs.more = 1;
	assert_int_equal(sized_check(caller, &theirs, sizeof(ours)), -E2BIG);
	theirs.known.size = sizeof(struct known);
	assert_int_equal(sized_check(caller, &theirs, sizeof(ours)), 0);
	theirs.known.size = 0;
	assert_int_equal(sized_check(caller, &theirs, sizeof(ours)), 0);
	theirs.known.size = sizeof(struct known) - 1;
	assert_int_equal(sized_check(caller, &theirs, sizeof(ours)), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_filled_is_as_large_as_it_says),
		cmocka_unit_test(what_says_no_size_is_not_filled),
		cmocka_unit_test(what_is_read_may_be_larger_where_that_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
