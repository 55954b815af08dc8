/*
 * check_test.c - the store's check, which other tests go by: it sees what is broken.
 */
#include "store_fixture.h"
#include "store_inside.h"

#include <string.h>

/* The node has a token of its own, of which it is said that it lies where the other's does. */
static void a_row_that_two_slices_have_is_seen(void **state)
{
	struct fixture f;
	struct store_seq *one, *other;
	char error[256] = "";
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	one = fixture_compute(&f, "abcd");
	other = fixture_compute(&f, "abc#");
	struct store_slice *slice = &store_seq_node(other)->slices[0], was = *slice;

	assert_int_equal(slice->first, 3);
	*slice = store_seq_node(one)->slices[0];
	assert_int_equal(slice->first, 3);
	assert_int_equal(slice->count, 1);
	assert_int_not_equal(store_validate(f.store, error, sizeof(error)), 0);
	assert_non_null(strstr(error, "row 3 is in two slices"));
	*slice = was;
	fixture_close(&f, one);
	fixture_close(&f, other);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_that_two_slices_have_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
