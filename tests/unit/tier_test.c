/* tier_test.c - host memory below the device, one behaviour a test. */
#include "tier_fixture.h"

#include <errno.h>
#include <string.h>

static const struct tier_world_key any;

/* The linker puts this around libc's: what a node needs to go down. */
static bool is_out_of_memory;
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	return is_out_of_memory ? NULL : __real_calloc(n, bytes);
}

static void test_what_is_evicted_comes_back_from_host_memory(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});
	struct store_match match;

	assert_int_equal(w->found.n_tokens, 0);
	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_HOST], 5);
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, &match);
	assert_int_equal(match.cached, 0);
	assert_int_equal(match.pending, 16);
	assert_true(store_seq_is_promoted(q) && !match.claimed);
	match = tier_world_wait(w, q);
	assert_int_equal(match.cached, 16);
	assert_true(match.claimed);
	assert_true(tier_world_right(w, q, DOCUMENT_A));
	store_seq_close(q, 0);
	struct store_tiers_stats stats = tier_world_stats(w);
	assert_int_equal(stats.tiers[STORE_HOST].hits, 4);
	assert_int_equal(stats.tiers[STORE_HOST].bytes_in, 5 * WORLD_PAGE_BYTES);
	assert_int_equal(stats.tiers[STORE_HOST].bytes_out, 4 * WORLD_PAGE_BYTES);
	assert_true(stats.tiers[STORE_HOST].waited_ns > 0);
	assert_int_equal(stats.tiers[STORE_FILE].hits, 0);
}

static void test_room_is_there_at_once(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){5, 16, 0});

	tier_world_leave(w, DOCUMENT_A);
	w->downs.held = true;
	tier_world_leave(w, DOCUMENT_B); /* no poll between the copies and the pages' next use */
	tier_world_let_go(w);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 16);
}

static void test_only_as_much_is_evicted_as_is_needed(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	struct store_node_info a = tier_info_of(w, 'a');
	assert_int_equal(a.n_pages_in[STORE_DEVICE], 3);
	assert_int_equal(a.n_pages_in[STORE_HOST], 2);
	assert_int_equal(tier_info_of(w, 'A').n_pages_in[STORE_DEVICE], 5);
}

static void test_the_nearest_comes_first(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});
	struct store_match match;

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	w->ups.held = true;
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, &match);
	store_tiers_poll(w->store, 1);
	assert_int_equal(w->ups.n_asked, 4);
	for (uint32_t i = 0; i < 4; i++) {
		w->ups.held = false;
		w->ups.n_asked = i + 1; /* one more is there */
		store_tiers_poll(w->store, 2 + i);
		w->ups.held = true;
		assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_DEVICE], i + 1);
		tier_world_check(w);
	}
	tier_world_let_go(w);
	store_seq_close(q, 9);
}

static void test_a_part_of_a_document_is_enough(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	assert_int_equal(tier_world_cached(w, any, "abcdefXYZ"), 6);
	struct store_node_info a = tier_info_of(w, 'a');
	assert_int_equal(a.n_pages_in[STORE_DEVICE], 2);
	assert_int_equal(a.n_pages_in[STORE_HOST], 3);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_branches_below_a_split_come_back(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 32, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	tier_world_leave(w, "abcdefXYZ");
	tier_world_leave(w, "abcdefghij01234");
	tier_evict(w);
	assert_int_equal(tier_world_cached(w, any, "abcdefXYZ"), 8);
	assert_int_equal(tier_world_cached(w, any, "abcdefghij01234"), 14);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_the_oldest_goes_where_host_memory_is_full(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){5, 8, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	tier_world_settle(w);
	tier_world_leave(w, DOCUMENT_C);
	tier_world_settle(w);
	tier_evict(w);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_C), 16);
	assert_int_equal(tier_world_stats(w).slices_dropped, 7);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 12);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 0);
}

/* A domain's texts of a length, none of which begins as another does. */
static void leave_three_others(struct tier_world *w, uint64_t domain)
{
	for (uint32_t i = 0; i < 3; i++) {
		char document[] = DOCUMENT_B;
		struct store_seq *q;

		document[0] = (char)('1' + i);
		q = tier_world_seq(w, (struct tier_world_key){.domain = domain}, document, NULL);
		assert_int_equal(tier_world_publish(w, q, document), 0);
		store_seq_close(q, 0);
		tier_world_settle(w);
	}
}

static void test_a_domain_displaces_its_own(void **state)
{
	struct tier_world *w =
		tier_world_of(state, (struct tier_world_options){.device_pages = 5,
								 .host_pages = 16,
								 .domain_host_pages = 6});

	tier_world_leave(w, DOCUMENT_A);
	leave_three_others(w, 2);
	assert_true(tier_world_stats(w).tiers[STORE_HOST].share_evicted > 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

/* What is used goes for nobody, so it may be no more of host memory than what is idle. */
static void test_a_long_path_leaves_others_theirs(void **state)
{
	struct tier_world *w =
		tier_world_of(state, (struct tier_world_options){.device_pages = 6,
								 .host_pages = 16,
								 .domain_host_pages = 10,
								 .long_paths = true});
	struct store_seq *q;
	char document[4 * 20 + 1] = "";
	uint32_t n = 0;
	int r = 0;

	tier_world_leave(w, DOCUMENT_A);
	q = tier_world_seq(w, (struct tier_world_key){.domain = 2}, "z", NULL);
	for (; !r && n < 20; n += !r) {
		memset(document + 4 * n, 'A' + (int)n, 4);
		r = tier_world_publish(w, q, document);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(n, 6 + 10);
	assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_HOST], 5);
	store_seq_close(q, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_whose_store_it_is_displaces_the_oldest(void **state)
{
	struct tier_world *w =
		tier_world_of(state, (struct tier_world_options){.device_pages = 5,
								 .host_pages = 8,
								 .domain_host_pages = 6});

	tier_world_leave(w, DOCUMENT_A);
	leave_three_others(w, WORLD_OWNER);
	assert_int_equal(tier_world_stats(w).tiers[STORE_HOST].share_evicted, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 0);
}

static void test_what_finds_no_room_is_ours_to_compute(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){6, 16, 0});
	struct store_match match;

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	struct store_seq *b = tier_world_seq(w, any, DOCUMENT_B, NULL);
	assert_int_equal(tier_world_publish(w, b, "ABCDEFGHIJKL"), 0);
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, &match);
	assert_true(store_seq_is_promoted(q));
	match = tier_world_wait(w, q);
	assert_int_equal(match.cached, 12);
	assert_true(match.claimed);
	assert_int_equal(tier_world_stats(w).wants_failed, 1);
	assert_true(tier_world_right(w, q, DOCUMENT_A));
	store_seq_close(q, 0);
	store_seq_close(b, 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_what_finds_no_room_is_given_up_at_once(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){6, 16, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	struct store_seq *b = tier_world_seq(w, any, DOCUMENT_B, NULL);
	assert_int_equal(tier_world_publish(w, b, "ABCDEFGHIJKL"), 0);
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, NULL);
	tier_world_settle(w); /* nobody has asked anew whether it is there */
	assert_int_equal(tier_world_stats(w).wants_failed, 1);
	assert_int_equal(tier_world_stats(w).n_wants, 0);
	store_seq_close(q, 0);
	store_seq_close(b, 0);
}

static void test_who_does_not_wait_may_compute(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 16, 0});
	struct store_match match;

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	w->ups.held = true;
	struct store_seq *waiting = tier_world_seq(w, any, DOCUMENT_A, &match);
	store_tiers_poll(w->store, 1);
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, &match);
	assert_true(store_seq_is_promoted(q));
	assert_int_equal(tier_world_publish(w, q, "abcdef"), 0);
	assert_true(tier_world_right(w, q, "abcdef"));
	tier_world_let_go(w);
	assert_true(tier_world_wait(w, waiting).cached >= 6);
	assert_true(tier_world_right(w, waiting, DOCUMENT_A));
	store_seq_close(q, 0);
	store_seq_close(waiting, 0);
}

/* And what hangs below stays. */
static void test_what_is_computed_anyway_takes_its_place(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 32, 64});
	struct store_match match;

	tier_world_leave(w, "abcdefghijk");
	tier_world_leave(w, "abcdefghijkLMNOPQRST");
	tier_world_leave(w, "abcdefghij01234");
	tier_evict(w);
	struct store_seq *q = tier_world_seq(w, any, "abcdefghijkLMxy", &match);
	assert_int_equal(match.pending, 13);
	assert_int_equal(tier_world_publish(w, q, "abcdefghijkLMxy"), 0);
	assert_int_equal(store_seq_n_tokens(q), 15);
	assert_true(tier_world_right(w, q, "abcdefghijkLMxy"));
	assert_int_equal(tier_world_stats(w).slices_dropped, 0);
	store_seq_close(q, 0);
	assert_int_equal(tier_world_cached(w, any, "abcdefghijkLMNOPQRST"), 19);
	assert_int_equal(tier_world_cached(w, any, "abcdefghij01234"), 14);
	assert_int_equal(tier_world_cached(w, any, "abcdefghijkLMxyz"), 15);
}

static void test_a_sequence_may_close_while_it_is_served(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 32});

	tier_world_leave(w, DOCUMENT_A);
	tier_evict(w);
	w->ups.held = true;
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, NULL);
	store_tiers_poll(w->store, 1);
	store_seq_close(q, 2);
	tier_world_check(w);
	tier_world_let_go(w);
	tier_world_settle(w);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_tiers_come_to_an_empty_store_alone(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});
	struct store_tiers_config config = {.depth = 1};

	assert_int_equal(store_tiers_attach(w->store, &config, &w->found), -EINVAL);
}

static uint64_t n_nodes(const struct tier_world *w)
{
	struct store_stats stats;

	store_stats(w->store, &stats);
	return stats.n_nodes;
}

static void tick(struct tier_world *w, uint64_t now_ns)
{
	while (store_tick(w->store, now_ns) == now_ns)
		tier_world_check(w);
	tier_world_check(w);
}

/* A document in two nodes of which the upper one is pinned, on the device, the other in host
 * memory. */
static void leave_in_two(struct tier_world *w, uint64_t until_ns)
{
	struct store_seq *a = tier_world_seq(w, any, "abcdefgh", NULL), *b;
	uint64_t pin;

	assert_int_equal(tier_world_publish(w, a, "abcdefgh"), 0);
	assert_int_equal(store_seq_fork(a, 0, &b), 0);
	assert_int_equal(tier_world_publish(w, b, DOCUMENT_A), 0);
	assert_int_equal(store_seq_pin(a, until_ns, &pin), 0);
	store_seq_close(a, 0);
	store_seq_close(b, 0);
	tier_evict(w);
	assert_int_equal(n_nodes(w), 2);
}

static void test_nodes_of_two_tiers_become_one(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});

	leave_in_two(w, 500);
	tick(w, 500);
	assert_int_equal(n_nodes(w), 1);
	struct store_node_info a = tier_info_of(w, 'a');
	assert_int_equal(a.n_pages_in[STORE_DEVICE], 2);
	assert_int_equal(a.n_pages_in[STORE_HOST], 3);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
	tier_evict(w);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static void test_a_copy_under_way_keeps_the_border(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 0});
	struct store_match match;

	leave_in_two(w, 500);
	w->ups.held = true;
	struct store_seq *q = tier_world_seq(w, any, DOCUMENT_A, &match);
	assert_true(match.cached == 8 && match.pending == 8);
	store_tiers_poll(w->store, 1);
	store_seq_close(q, 1); /* nobody wants it any more; the copies go on */
	tick(w, 500);
	assert_int_equal(n_nodes(w), 2);
	tier_world_let_go(w);
	tier_world_settle(w);
	tick(w, 501);
	assert_int_equal(n_nodes(w), 1);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 16);
}

static uint64_t n_pages(const struct tier_world *w)
{
	struct store_stats stats;

	store_stats(w->store, &stats);
	return stats.n_pages;
}

/* It is lost, and the pages that are free by that are counted. What is older goes first. */
static void test_what_has_no_memory_to_go_down_is_forgotten(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){16, 16, 0});

	tier_world_leave(w, DOCUMENT_A);
	tier_world_leave(w, DOCUMENT_B);
	assert_int_equal(n_pages(w), 10);
	is_out_of_memory = true;
	assert_int_equal(store_evict(w->store, NULL, 100, 1), 5);
	is_out_of_memory = false;
	assert_int_equal(n_pages(w), 5);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_A), 0);
	assert_int_equal(tier_world_cached(w, any, DOCUMENT_B), 16);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tier_set_up, tier_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_is_evicted_comes_back_from_host_memory),
		TEST(test_room_is_there_at_once),
		TEST(test_only_as_much_is_evicted_as_is_needed),
		TEST(test_the_nearest_comes_first),
		TEST(test_a_part_of_a_document_is_enough),
		TEST(test_branches_below_a_split_come_back),
		TEST(test_the_oldest_goes_where_host_memory_is_full),
		TEST(test_a_domain_displaces_its_own),
		TEST(test_a_long_path_leaves_others_theirs),
		TEST(test_whose_store_it_is_displaces_the_oldest),
		TEST(test_what_finds_no_room_is_ours_to_compute),
		TEST(test_what_finds_no_room_is_given_up_at_once),
		TEST(test_who_does_not_wait_may_compute),
		TEST(test_what_is_computed_anyway_takes_its_place),
		TEST(test_a_sequence_may_close_while_it_is_served),
		TEST(test_nodes_of_two_tiers_become_one),
		TEST(test_a_copy_under_way_keeps_the_border),
		TEST(test_tiers_come_to_an_empty_store_alone),
		TEST(test_what_has_no_memory_to_go_down_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
