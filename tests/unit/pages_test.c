/* pages_test.c - extents lent and returned, pages shared, rows handed out and given back. */
#include "store_fixture.h"

#include <errno.h>

static void test_an_extent_is_borrowed_with_the_first_page_and_goes_with_the_model(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *m = fixture_model(&f, "other", 4, 100);
	struct store_seq *q = fixture_open_in(&f, m, 1, 0, "abcdefgh", NULL);
	assert_int_equal(f.n_committed, 0);
	fixture_publish(&f, q, "abcdefgh");
	assert_int_equal(f.n_committed, 1);
	assert_int_equal(fixture_stats(&f).n_pages, 2);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	fixture_check(&f);
	assert_int_equal(f.n_committed, 1);
	store_model_unref(m);
	assert_int_equal(f.n_committed, 0);
	fixture_done(&f);
}

static void test_one_empty_extent_stays_for_the_next_page(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 2});
	fixture_leave(&f, "aaaabbbbccccdddd");
	assert_int_equal(f.n_committed, 2);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 4);
	fixture_check(&f);
	assert_int_equal(f.n_committed, 1);
	f.refuse = true;
	struct store_seq *q = fixture_compute(&f, "aaaabbbb");
	assert_int_equal(fixture_extend(&f, q, "cccc", false), -ENOSPC);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_an_empty_extent_goes_to_whom_the_pool_has_none_for(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 1});
	struct store_model *other = fixture_model(&f, "other", 4, 50);
	fixture_leave(&f, "aaaa");
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	struct store_seq *q = fixture_open_in(&f, other, 1, 0, "aaaa", NULL);
	fixture_publish(&f, q, "aaaa");
	assert_int_equal(f.n_committed, 1);
	fixture_close(&f, q);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_a_failed_commit_is_no_room(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "abc", NULL);
	f.refuse = true;
	assert_int_equal(fixture_extend(&f, q, "abc", false), -ENOSPC);
	f.refuse = false;
	fixture_publish(&f, q, "abc");
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_tokens_lie_in_the_row_of_their_position(void **state)
{
	struct fixture f;
	uint32_t page, row;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcdef");
	struct store_seq *q = fixture_compute(&f, "abcXYZ");
	for (uint32_t pos = 0; pos < 6; pos++) {
		fixture_row(q, pos, &page, &row);
		assert_int_equal(row, pos % 4);
	}
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_an_extension_goes_on_in_the_last_page(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "a");
	for (int i = 0; i < 7; i++)
		fixture_publish(&f, q, "x");
	assert_int_equal(fixture_stats(&f).n_pages, 2);
	assert_int_equal(fixture_stats(&f).n_nodes, 1);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_the_second_at_a_place_starts_a_new_page_at_that_row(void **state)
{
	struct fixture f;
	uint32_t n;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "ab"), *b;
	assert_int_equal(store_seq_fork(a, f.now_ns, &b), 0);
	assert_int_equal(fixture_extend(&f, a, "c", false), 0);
	assert_int_equal(fixture_extend(&f, b, "d", false), 0);
	struct store_slice slot_a = *store_seq_slots(a, &n), slot_b = *store_seq_slots(b, &n);
	assert_int_equal(slot_a.first, 2);
	assert_int_equal(slot_b.first, 2);
	assert_int_not_equal(slot_a.page, slot_b.page);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_rows_of_a_voided_extension_are_handed_out_again(void **state)
{
	struct fixture f;
	uint32_t n;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "c", true), 0);
	struct store_slice before = *store_seq_slots(q, &n);
	store_seq_void(q, f.now_ns);
	assert_int_equal(fixture_extend(&f, q, "d", true), 0);
	struct store_slice after = *store_seq_slots(q, &n);
	assert_memory_equal(&before, &after, sizeof(before));
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_page_of_two_slices_stays_until_both_go(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcd");
	struct store_seq *q = fixture_compute(&f, "abX");
	assert_int_equal(fixture_stats(&f).n_pages, 2);
	/* "cd" goes, but "ab" is in the same page. */
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 0);
	assert_int_equal(fixture_stats(&f).nodes_evicted, 1);
	assert_int_equal(fixture_stats(&f).n_pages, 2);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 2);
	fixture_done(&f);
}

static void test_models_differ_in_page_bytes(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 2, .extent_pages = 8});
	struct store_model *big = fixture_model(&f, "big", 2, 400);
	struct store_seq *a = fixture_open_in(&f, big, 1, 0, "abcd", NULL);
	struct store_seq *b = fixture_compute(&f, "abcd");
	assert_int_equal(fixture_extend(&f, a, "abcd", false), 0);
	assert_int_equal(fixture_stats(&f).n_extents_used, 2);
	assert_int_equal(fixture_stats(&f).page_bytes, 2 * 400 + 100);
	assert_int_equal(fixture_extend(&f, b, "123456789012345678901234567890", false), -ENOSPC);
	fixture_close(&f, a);
	fixture_close(&f, b);
	store_model_unref(big);
	fixture_done(&f);
}

static void test_a_page_larger_than_an_extent_is_refused(void **state)
{
	struct fixture f;
	struct store_model *m;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model_info info = {.name = "m2", .page_tokens = 4, .page_bytes = 1601};
	assert_int_equal(store_model_open(f.store, &info, &m), -EMSGSIZE);
	fixture_done(&f);
}

/* Of pages of four tokens, two to an extent. */
static struct store_foresight foresee(const struct store_seq *q, uint32_t n)
{
	struct store_foresight foresight = {0};
	struct store_slice slots[200];

	assert_true(store_seq_foresee(q, n, &foresight, slots) > 0);
	return foresight;
}

static void get_ready(struct fixture *f, const struct store_foresight *foresight)
{
	while (store_model_get_ready(f->model, foresight))
		;
}

static void test_each_time_one_extent_gets_memory(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 1});
	struct store_seq *q = fixture_compute(&f, "abcd");
	struct store_foresight foresight = foresee(q, 8);
	assert_true(store_model_get_ready(f.model, &foresight));
	assert_int_equal(f.n_committed, 2);
	assert_true(store_model_get_ready(f.model, &foresight));
	assert_int_equal(f.n_committed, 3);
	assert_false(store_model_get_ready(f.model, &foresight));
	assert_int_equal(f.n_committed, 3);
	fixture_check(&f);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_what_is_foreseen_has_memory_before_its_tokens_come(void **state)
{
	struct fixture f;
	struct store_slice slots[5];
	uint32_t n;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 2});
	struct store_seq *q = fixture_compute(&f, "abcd");
	struct store_foresight foresight = {0};
	assert_int_equal(store_seq_foresee(q, 17, &foresight, slots), 5);
	get_ready(&f, &foresight);
	fixture_check(&f);
	assert_int_equal(f.n_committed, 3);
	f.refuse = true;
	assert_int_equal(fixture_extend(&f, q, "01234567890123456", false), 0);
	assert_memory_equal(store_seq_slots(q, &n), slots, sizeof(slots));
	assert_int_equal(n, 5);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_what_has_memory_is_foreseen_again_in_the_same_order(void **state)
{
	struct fixture f;
	struct store_slice slots[5], again[5];
	struct store_foresight foresight = {0}, second = {0};
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 1});
	struct store_seq *q = fixture_compute(&f, "abcd");
	fixture_leave(&f, "xxxx");
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	assert_int_equal(store_seq_foresee(q, 20, &foresight, slots), 5);
	get_ready(&f, &foresight);
	assert_int_equal(store_seq_foresee(q, 20, &second, again), 5);
	assert_memory_equal(again, slots, sizeof(slots));
	get_ready(&f, &second);
	assert_int_equal(f.n_committed, 6);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_only_so_many_have_memory_ahead_and_others_get_it(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 1, .n_extents = 12});
	struct store_seq *q = fixture_compute(&f, "abcd");
	struct store_foresight foresight = foresee(q, 40);
	get_ready(&f, &foresight);
	fixture_check(&f);
	assert_int_equal(f.n_committed, 1 + 8);
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	struct store_seq *theirs = fixture_open_in(&f, other, 1, 0, "aaaa", NULL);
	for (uint32_t i = 0; i < 11; i++)
		fixture_publish(&f, theirs, "aaaa");
	fixture_check(&f);
	assert_int_equal(fixture_extend(&f, theirs, "a", false), -ENOSPC);
	fixture_close(&f, theirs);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 12);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_what_there_is_no_memory_for_is_not_there_ahead(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 1});
	struct store_seq *q = fixture_compute(&f, "abcd");
	struct store_foresight foresight = foresee(q, 8);
	f.refuse = true;
	get_ready(&f, &foresight);
	fixture_check(&f);
	assert_int_equal(f.n_committed, 1);
	f.refuse = false;
	assert_int_equal(fixture_extend(&f, q, "01234567", false), 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_extent_is_borrowed_with_the_first_page_and_goes_with_the_model),
		cmocka_unit_test(test_one_empty_extent_stays_for_the_next_page),
		cmocka_unit_test(test_an_empty_extent_goes_to_whom_the_pool_has_none_for),
		cmocka_unit_test(test_a_failed_commit_is_no_room),
		cmocka_unit_test(test_tokens_lie_in_the_row_of_their_position),
		cmocka_unit_test(test_an_extension_goes_on_in_the_last_page),
		cmocka_unit_test(test_the_second_at_a_place_starts_a_new_page_at_that_row),
		cmocka_unit_test(test_rows_of_a_voided_extension_are_handed_out_again),
		cmocka_unit_test(test_a_page_of_two_slices_stays_until_both_go),
		cmocka_unit_test(test_models_differ_in_page_bytes),
		cmocka_unit_test(test_a_page_larger_than_an_extent_is_refused),
		cmocka_unit_test(test_each_time_one_extent_gets_memory),
		cmocka_unit_test(test_what_is_foreseen_has_memory_before_its_tokens_come),
		cmocka_unit_test(test_what_has_memory_is_foreseen_again_in_the_same_order),
		cmocka_unit_test(test_only_so_many_have_memory_ahead_and_others_get_it),
		cmocka_unit_test(test_what_there_is_no_memory_for_is_not_there_ahead),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
