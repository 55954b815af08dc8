/* pins_test.c - the listing of pins: what a pin says, whose are listed, and in pages. */
#include "store_fixture.h"

#include <errno.h>

#define N_MOST 16u

static uint64_t pin(struct fixture *f, struct store_seq *q, uint64_t until_ns)
{
	uint64_t id;

	assert_int_equal(store_seq_pin(q, until_ns, &id), 0);
	fixture_check(f);
	return id;
}

/* All of a domain's, n at a time. */
static uint32_t list(const struct fixture *f, uint64_t domain, uint32_t n,
		     struct store_pin_info *ret)
{
	uint64_t cursor = 0;
	uint32_t n_done = 0;

	do {
		assert_true(n_done + n <= N_MOST);
		n_done += store_pins(f->store, domain, &cursor, ret + n_done, n);
	} while (cursor);
	return n_done;
}

static void test_an_empty_list_ends_at_once(void **state)
{
	struct store_pin_info info[1];
	struct fixture f;
	uint64_t cursor = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	assert_int_equal(store_pins(f.store, UINT64_MAX, &cursor, info, 1), 0);
	assert_int_equal(cursor, 0);
	fixture_done(&f);
}

static void test_a_pin_says_what_it_keeps(void **state)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open_in(&f, f.model, 7, 9, "abcdefghij", NULL);
	fixture_publish(&f, q, "abcdefghij");
	uint64_t id = pin(&f, q, 500);
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 1);
	assert_int_equal(info[0].id, id);
	assert_string_equal(info[0].model, "m");
	assert_int_equal(info[0].domain, 7);
	assert_int_equal(info[0].salt, 9);
	assert_int_equal(info[0].n_tokens, 10);
	assert_int_equal(info[0].bytes, 300);
	assert_int_equal(info[0].until_ns, 500);
	uint64_t again;
	assert_int_equal(store_node_pin(f.store, info[0].node_id, 600, &again), 0);
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 2);
	assert_int_equal(info[1].node_id, info[0].node_id);
	assert_int_equal(store_unpin(f.store, again, 7, 0), 0);
	fixture_close(&f, q);
	assert_int_equal(store_unpin(f.store, id, 7, 0), 0);
	fixture_done(&f);
}

/* Of a page that a split has cut both nodes have a slice; and a path may end before its last. */
static void test_a_page_of_two_nodes_counts_once(void **state)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcdefghij");
	struct store_seq *b = fixture_compute(&f, "abcdefXY");
	struct store_seq *c = fixture_open(&f, "abcde", NULL);
	pin(&f, a, 500);
	pin(&f, b, 500);
	pin(&f, c, 500);
	assert_int_equal(fixture_stats(&f).n_nodes, 3);
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 3);
	assert_int_equal(info[0].bytes, 300); /* 0-3, 4-7 in two nodes, 8-9 */
	assert_int_equal(info[1].bytes, 300); /* 0-3, 4-5, and XY in a page of its own */
	assert_int_equal(info[2].n_tokens, 4);
	assert_int_equal(info[2].bytes, 100);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_close(&f, c);
	store_tick(f.store, 500);
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 0);
	fixture_done(&f);
}

static void test_a_run_that_goes_on_in_its_parents_page_counts_it_once(void **state)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcdef"), *b;
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	fixture_publish(&f, b, "gh");
	assert_int_equal(fixture_stats(&f).n_nodes, 2);
	pin(&f, b, 500);
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 1);
	assert_int_equal(info[0].bytes, 200);
	fixture_close(&f, a);
	fixture_close(&f, b);
	store_tick(f.store, 500);
	fixture_done(&f);
}

static void test_a_domain_sees_its_own_alone(void **state)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	uint64_t ids[6];
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open_in(&f, f.model, 1, 0, "a", NULL);
	struct store_seq *b = fixture_open_in(&f, f.model, 2, 0, "b", NULL);
	for (uint32_t i = 0; i < 6; i++)
		ids[i] = pin(&f, i % 2 ? b : a, 500);
	assert_int_equal(list(&f, 2, 1, info), 3);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(info[i].id, ids[2 * i + 1]);
	assert_int_equal(list(&f, 3, 1, info), 0);
	fixture_close(&f, a);
	fixture_close(&f, b);
	store_tick(f.store, 500);
	fixture_done(&f);
}

static void test_a_listing_goes_on_after_a_pin_that_ended(void **state)
{
	struct store_pin_info info[2];
	struct fixture f;
	uint64_t ids[4], cursor = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "a", NULL);
	for (uint32_t i = 0; i < 4; i++)
		ids[i] = pin(&f, q, i == 1 ? 100 : 500);
	assert_int_equal(store_pins(f.store, 1, &cursor, info, 2), 2);
	assert_int_equal(info[1].id, ids[1]);
	store_tick(f.store, 100);
	assert_int_equal(store_pins(f.store, 1, &cursor, info, 2), 2);
	assert_int_equal(info[0].id, ids[2]);
	assert_int_equal(info[1].id, ids[3]);
	assert_int_equal(cursor, 0);
	fixture_close(&f, q);
	store_tick(f.store, 500);
	fixture_done(&f);
}

/* Of a heap's halves one ends later than the other: what fills a gap rises, or sinks. */
static const uint8_t ends_ns[] = {1, 9, 2, 10, 11, 3, 4, 12, 13, 14, 15, 5, 6, 7, 8};
#define N_ENDS ((uint32_t)sizeof(ends_ns))

/* One of them ends out of turn: the others end when they said, none before and none after. */
static void others_end_in_time(uint32_t unpinned)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	uint64_t ids[N_ENDS];

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "a", NULL);
	for (uint32_t i = 0; i < N_ENDS; i++)
		ids[i] = pin(&f, q, ends_ns[i]);
	assert_int_equal(store_unpin(f.store, ids[unpinned], 1, 0), 0);
	for (uint32_t now = 1; now <= N_ENDS; now++) {
		store_tick(f.store, now);
		uint32_t n = list(&f, UINT64_MAX, 1, info);
		assert_int_equal(n, N_ENDS - now - (ends_ns[unpinned] > now));
		while (n-- > 0)
			assert_true(info[n].until_ns > now);
	}
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_pins_end_in_time_whichever_ended_before(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < N_ENDS; i++)
		others_end_in_time(i);
}

static int try_pin(struct fixture *f, struct store_seq *q, uint64_t *ret)
{
	int r = store_seq_pin(q, 500, ret);

	fixture_check(f);
	return r;
}

static void test_pins_of_a_domain_keep_so_much(void **state)
{
	struct fixture f;
	uint64_t first, pin_id;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_pin_bytes = 300});
	struct store_seq *a = fixture_compute(&f, "aaaabbbb");
	struct store_seq *b = fixture_compute(&f, "ccccdddd");
	assert_int_equal(try_pin(&f, a, &first), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 200);
	assert_int_equal(try_pin(&f, b, &pin_id), -EDQUOT);
	assert_int_equal(try_pin(&f, a, &pin_id), 0); /* the same again is no more */
	assert_int_equal(store_unpin(f.store, first, 1, 0), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 200);
	assert_int_equal(store_unpin(f.store, pin_id, 1, 0), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 0);
	assert_int_equal(try_pin(&f, b, &pin_id), 0);
	fixture_close(&f, a);
	fixture_close(&f, b);
	assert_int_equal(store_unpin(f.store, pin_id, 1, 0), 0);
	fixture_done(&f);
}

static void test_what_is_shared_is_counted_once(void **state)
{
	struct fixture f;
	uint64_t a_pin, b_pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_pin_bytes = 400});
	struct store_seq *a = fixture_compute(&f, "aaaabbbbcccc");
	struct store_seq *b = fixture_compute(&f, "aaaabbbbdddd");
	assert_int_equal(try_pin(&f, a, &a_pin), 0);
	assert_int_equal(try_pin(&f, b, &b_pin), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 400);
	fixture_close(&f, a);
	fixture_close(&f, b);
	assert_int_equal(store_unpin(f.store, a_pin, 1, 0), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 300);
	assert_int_equal(store_unpin(f.store, b_pin, 1, 0), 0);
	fixture_done(&f);
}

/* Else a short pin would keep whatever its sequence appends. */
static void test_what_is_appended_to_a_pinned_path_is_not_pinned(void **state)
{
	struct fixture f;
	uint64_t id;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_pin_bytes = 200});
	struct store_seq *q = fixture_compute(&f, "aaaa");
	assert_int_equal(try_pin(&f, q, &id), 0);
	fixture_publish(&f, q, "bbbbccccdddd");
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 100);
	fixture_close(&f, q);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 3);
	assert_int_equal(store_unpin(f.store, id, 1, 0), 0);
	fixture_done(&f);
}

static void test_a_split_gives_back_what_is_not_kept(void **state)
{
	struct fixture f;
	uint64_t id;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_close(&f, fixture_compute(&f, "aaaabbbbcccc"));
	struct store_seq *q = fixture_open(&f, "aaaax", NULL);
	assert_int_equal(try_pin(&f, q, &id), 0);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 300);
	fixture_publish(&f, q, "x");
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).pinned_bytes, 100);
	fixture_close(&f, q);
	assert_int_equal(store_unpin(f.store, id, 1, 0), 0);
	fixture_done(&f);
}

static void test_the_oldest_of_a_model_ends_at_a_ruler_s_wish(void **state)
{
	struct store_pin_info info[N_MOST];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *other = fixture_model(&f, "n", 4, 100);
	struct store_seq *a = fixture_open_in(&f, f.model, 1, 0, "aaaab", NULL);
	struct store_seq *b = fixture_open_in(&f, other, 2, 0, "aaaab", NULL);
	fixture_publish(&f, a, "aaaa");
	fixture_publish(&f, b, "aaaa");
	pin(&f, a, 500);
	pin(&f, b, 500);
	fixture_close(&f, a);
	fixture_close(&f, b);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 0);
	assert_true(store_unpin_oldest(f.store, "n"));
	assert_false(store_unpin_oldest(f.store, "n"));
	assert_int_equal(list(&f, UINT64_MAX, 4, info), 1);
	assert_int_equal(info[0].domain, 1);
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	assert_true(store_unpin_oldest(f.store, NULL));
	assert_int_equal(store_evict(f.store, NULL, 100, 100), 1);
	store_model_unref(other);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_an_empty_list_ends_at_once),
		cmocka_unit_test(test_a_pin_says_what_it_keeps),
		cmocka_unit_test(test_a_page_of_two_nodes_counts_once),
		cmocka_unit_test(test_a_run_that_goes_on_in_its_parents_page_counts_it_once),
		cmocka_unit_test(test_a_domain_sees_its_own_alone),
		cmocka_unit_test(test_a_listing_goes_on_after_a_pin_that_ended),
		cmocka_unit_test(test_pins_end_in_time_whichever_ended_before),
		cmocka_unit_test(test_pins_of_a_domain_keep_so_much),
		cmocka_unit_test(test_what_is_shared_is_counted_once),
		cmocka_unit_test(test_what_is_appended_to_a_pinned_path_is_not_pinned),
		cmocka_unit_test(test_a_split_gives_back_what_is_not_kept),
		cmocka_unit_test(test_the_oldest_of_a_model_ends_at_a_ruler_s_wish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
