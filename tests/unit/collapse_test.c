/* collapse_test.c - chains of nodes become one where nobody needs the border, and nowhere else. */
#include "store_fixture.h"

#include <stdio.h>
#include <string.h>

#define MANY_CHILDREN 65u

/* As the scheduler does when it has nothing else to do. */
static void tick(struct fixture *f)
{
	while (store_tick(f->store, f->now_ns) == f->now_ns)
		fixture_check(f);
	fixture_check(f);
}

static uint64_t n_nodes(const struct fixture *f)
{
	return fixture_stats(f).n_nodes;
}

/* The whole tree. */
static uint32_t list(const struct fixture *f, struct store_node_info *ret, uint32_t n)
{
	uint64_t cursor = 0;

	return store_walk(f->store, UINT64_MAX, &cursor, ret, n);
}

/* A prompt in chunks, and tokens one by one behind it; another app waits for each chunk. */
static void run(struct fixture *f, const char *prompt, uint32_t chunk, const char *answer)
{
	struct store_match match;
	struct store_seq *q = fixture_open(f, prompt, &match);
	struct store_seq *waiter = fixture_open(f, prompt, NULL);
	char text[64];

	for (uint32_t at = match.cached; prompt[at]; at += (uint32_t)strlen(text)) {
		snprintf(text, chunk + 1, "%s", prompt + at);
		fixture_publish(f, q, text);
		assert_int_equal(store_seq_rematch(waiter, f->now_ns, &match), 0);
	}
	for (; *answer; answer++)
		fixture_publish(f, q, (char[]){*answer, '\0'});
	fixture_close(f, waiter);
	fixture_close(f, q);
	tick(f);
}

static void test_a_second_run_leaves_as_many_nodes_as_the_first(void **state)
{
	struct fixture f;
	uint64_t first = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 32});
	for (uint32_t i = 0; i < 3; i++) {
		run(&f, "a document and the first question", 7, "yes it is");
		run(&f, "a document and the second question", 7, "no it is not");
		run(&f, "something else altogether", 5, "well");
		if (i == 0)
			first = n_nodes(&f);
		assert_int_equal(n_nodes(&f), first);
	}
	assert_int_equal(first, 4);
	assert_int_equal(fixture_cached(&f, "a document and the first questionyes it is#"), 42);
	fixture_done(&f);
}

/* Two slices of a page that a split has cut are one again, and every token lies where it lay. */
static void test_what_a_split_has_cut_becomes_whole(void **state)
{
	struct store_node_info info[4];
	struct fixture f;
	uint32_t page[10], row[10], page_now = 0, row_now = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "abcdefghij");
	for (uint32_t i = 0; i < 10; i++)
		fixture_row(q, i, &page[i], &row[i]);
	struct store_seq *other = fixture_compute(&f, "abcdefX");
	assert_int_equal(n_nodes(&f), 3);
	fixture_close(&f, other);
	assert_int_equal(store_evict(f.store, NULL, 1, 1), 1);
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	assert_int_equal(fixture_stats(&f).nodes_collapsed, 1);
	assert_int_equal(list(&f, info, 4), 2);
	assert_int_equal(info[1].n_tokens, 10);
	assert_int_equal(info[1].n_pages, 3);
	for (uint32_t i = 0; i < 10; i++) {
		fixture_row(q, i, &page_now, &row_now);
		assert_true(page_now == page[i] && row_now == row[i]);
	}
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_what_hangs_below_stays_and_keeps_its_order(void **state)
{
	struct store_node_info before[6], after[6];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcd1111");
	fixture_leave(&f, "abcd2222");
	fixture_leave(&f, "abcd3333");
	struct store_seq *q = fixture_open(&f, "ab#", NULL);
	struct store_match match;
	assert_int_equal(fixture_extend(&f, q, "#", false), 0); /* ab | cd */
	assert_int_equal(list(&f, before, 6), 6);
	store_seq_close(q, 0);
	tick(&f);
	assert_int_equal(list(&f, after, 6), 5);
	assert_int_equal(after[1].n_tokens, 4);
	for (uint32_t i = 2; i < 5; i++) {
		assert_int_equal(after[i].id, before[i + 1].id);
		assert_int_equal(after[i].parent_id, after[1].id);
	}
	fixture_close(&f, fixture_open(&f, "abcd2222#", &match));
	assert_int_equal(match.cached, 8);
	fixture_done(&f);
}

static void test_a_sequence_that_stands_there_keeps_the_border(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcd"), *b;
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	fixture_publish(&f, b, "efgh");
	tick(&f);
	assert_int_equal(n_nodes(&f), 2);
	fixture_publish(&f, a, "efgh");
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	assert_ptr_equal(store_seq_node(a), store_seq_node(b));
	fixture_publish(&f, a, "ij");
	fixture_publish(&f, b, "kl");
	assert_int_equal(n_nodes(&f), 3);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_a_pin_that_ends_there_keeps_the_border(void **state)
{
	struct fixture f;
	uint64_t pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcd"), *b;
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	assert_int_equal(store_seq_pin(a, 500, &pin), 0);
	fixture_publish(&f, b, "efgh");
	fixture_close(&f, a);
	tick(&f);
	assert_int_equal(n_nodes(&f), 2);
	fixture_close(&f, b);
	f.now_ns = 500;
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	fixture_done(&f);
}

static void test_a_sequence_in_the_middle_below_keeps_the_border(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcd"), *b;
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	fixture_publish(&f, b, "efgh");
	struct store_seq *c = fixture_open(&f, "abcdef", NULL);
	fixture_close(&f, a);
	tick(&f);
	assert_int_equal(n_nodes(&f), 2);
	fixture_close(&f, c);
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_a_claim_moves_along(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefghijkl", NULL);
	struct store_seq *b = fixture_open(&f, "abcd#", NULL);
	fixture_publish(&f, a, "abcd");
	assert_int_equal(store_seq_rematch(b, 0, &match), 0);
	fixture_publish(&f, a, "efgh"); /* not in place: b stands there */
	assert_int_equal(n_nodes(&f), 2);
	fixture_close(&f, b);
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	assert_int_equal(fixture_stats(&f).n_claims, 1);
	b = fixture_open(&f, "abcdefghijkl", &match);
	assert_true(match.cached == 8 && match.pending == 3 && !match.claimed);
	fixture_close(&f, a);
	assert_int_equal(store_seq_rematch(b, 0, &match), 0);
	assert_true(match.claimed);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_a_live_extension_stays_at_the_end(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, "abcd"), *b;
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	fixture_publish(&f, b, "ef");
	assert_int_equal(fixture_extend(&f, b, "gh", false), 0);
	fixture_close(&f, a);
	tick(&f);
	assert_int_equal(n_nodes(&f), 1);
	assert_int_equal(store_node_n_tokens(store_seq_node(b)), 6);
	assert_int_equal(store_seq_publish(b, 0), 0);
	fixture_check(&f);
	assert_int_equal(n_nodes(&f), 1);
	assert_int_equal(store_seq_n_tokens(b), 8);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_a_walk_goes_on_where_its_next_node_was_taken_in(void **state)
{
	struct store_node_info info[6];
	struct fixture f;
	uint64_t cursor = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcd1111");
	fixture_leave(&f, "abcd2222");
	struct store_seq *q = fixture_open(&f, "ab#", NULL);
	assert_int_equal(fixture_extend(&f, q, "#", false), 0);
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 2), 2); /* next: cd */
	assert_int_equal(info[1].n_tokens, 2);
	fixture_close(&f, q);
	tick(&f);
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 6), 2);
	assert_int_equal(info[0].n_tokens, 4);
	assert_int_equal(info[0].depth, 2);
	assert_int_equal(info[1].depth, 2);
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 6), 0);
	assert_int_equal(cursor, 0);
	fixture_done(&f);
}

/* Whether a child of so many children has become one with its parent: telling them all that they
 * have another one would take long. */
static bool collapses(uint32_t n_children)
{
	struct fixture f;
	char prompt[8];

	fixture_init(&f, (struct fixture_options){.n_extents = 32});
	for (uint32_t i = 0; i < n_children; i++) {
		snprintf(prompt, sizeof(prompt), "abcd%c", (char)(' ' + i));
		fixture_leave(&f, prompt);
	}
	struct store_seq *q = fixture_open(&f, "ab|", NULL);
	assert_int_equal(fixture_extend(&f, q, "|", false), 0);
	fixture_close(&f, q);
	tick(&f);
	uint64_t n = n_nodes(&f);
	fixture_done(&f);
	assert_in_range(n, n_children + 1, n_children + 2);
	return n == n_children + 1;
}

static void test_a_child_with_many_children_stays(void **state)
{
	(void)state;
	assert_true(collapses(MANY_CHILDREN - 1));
	assert_false(collapses(MANY_CHILDREN));
}

static void test_a_long_node_loses_its_end_first(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcdefghijklmnop");
	assert_int_equal(store_evict(f.store, NULL, 1, 10), 1);
	fixture_check(&f);
	assert_int_equal(fixture_cached(&f, "abcdefghijklmnop"), 12);
	assert_int_equal(fixture_stats(&f).nodes_evicted, 0);
	assert_int_equal(store_evict(f.store, NULL, 100, 10), 3);
	assert_int_equal(fixture_stats(&f).nodes_evicted, 1);
	assert_int_equal(fixture_stats(&f).slices_evicted, 4);
	fixture_done(&f);
}

static void test_numbers_stay_small(void **state)
{
	struct store_node_info info[4];
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	for (uint32_t i = 0; i < 100; i++) {
		fixture_leave(&f, "abcd1");
		fixture_leave(&f, "abcd2");
		assert_int_equal(list(&f, info, 4), 4);
		for (uint32_t j = 0; j < 4; j++)
			assert_in_range(info[j].id, 1, 4);
		store_evict(f.store, NULL, 100, 100);
		fixture_check(&f);
	}
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_second_run_leaves_as_many_nodes_as_the_first),
		cmocka_unit_test(test_what_a_split_has_cut_becomes_whole),
		cmocka_unit_test(test_what_hangs_below_stays_and_keeps_its_order),
		cmocka_unit_test(test_a_sequence_that_stands_there_keeps_the_border),
		cmocka_unit_test(test_a_pin_that_ends_there_keeps_the_border),
		cmocka_unit_test(test_a_sequence_in_the_middle_below_keeps_the_border),
		cmocka_unit_test(test_a_claim_moves_along),
		cmocka_unit_test(test_a_live_extension_stays_at_the_end),
		cmocka_unit_test(test_a_walk_goes_on_where_its_next_node_was_taken_in),
		cmocka_unit_test(test_a_child_with_many_children_stays),
		cmocka_unit_test(test_a_long_node_loses_its_end_first),
		cmocka_unit_test(test_numbers_stay_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
