/*
 * tier_write_test.c - what waits to be written: how long it waits, and what it leaves to others of
 * host memory meanwhile.
 */
#include "tier_fixture.h"

static const struct tier_world_key any;

/* How much of a document the file has. */
static uint32_t in_file(void **state, const char *document)
{
	return tier_world_cached(tier_restart(state), any, document);
}

/* The copy down, on which the write waits, is all that is under way. */
static void test_a_page_that_is_still_copied_is_written_later(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 16, 16});

	tier_world_leave(w, "abcd");
	w->downs.held = true;
	tier_evict(w);
	assert_true(store_tiers_poll(w->store, 1));
	assert_true(store_tiers_poll(w->store, 2));
	tier_world_let_go(w);
	tier_world_settle(w);
	assert_int_equal(in_file(state, "abcde"), 4);
}

/* A chunk of host memory has pages of one size: the other size's chunk is no way to the file. */
static void test_what_finds_no_way_to_the_file_is_given_up(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){8, 8, 32});
	struct store_model_info info = {.name = "small",
					.page_tokens = WORLD_PAGE_TOKENS,
					.page_bytes = WORLD_PAGE_BYTES / WORLD_PAGE_UNITS};
	struct store_model *small;
	uint32_t ids[] = {'w', 'x', 'y', 'z'};

	assert_int_equal(store_model_open(w->store, &info, &small), 0);
	struct store_seq *q =
		tier_world_seq(w, (struct tier_world_key){.model = small}, "wxyz", NULL);
	assert_int_equal(store_seq_extend(q, ids, 4, false, w->now_ns), 0);
	assert_int_equal(store_seq_publish(q, w->now_ns), 0);
	store_seq_close(q, w->now_ns);
	tier_evict(w);
	tier_world_leave(w, "abcdefghijklmnop");
	tier_evict(w);
	tier_world_settle(w);
	assert_int_equal(tier_info_of(w, 'a').n_pages_in[STORE_HOST], 4);
	tier_world_leave(w, "ABCD");
	store_tiers_flush(w->store);
	tier_world_settle(w);
	store_model_unref(small);
	assert_int_equal(in_file(state, "ABCDE"), 0);
}

/* Places that pages pass through are those kept for it: others find as many as without. */
static void test_passing_pages_take_no_room_from_others(void **state)
{
	struct tier_world *w = tier_world_of(state, (struct tier_world_options){.device_pages = 16,
										.host_pages = 8,
										.file_pages = 32,
										.depth = 2});
	struct store_seq *a = tier_world_seq(w, any, DOCUMENT_A, NULL);

	assert_int_equal(tier_world_publish(w, a, DOCUMENT_A), 0);
	store_tiers_flush(w->store);
	w->downs.held = true;
	store_tiers_poll(w->store, 1);
	assert_int_equal(w->downs.n_asked - w->downs.n_done, 2);
	tier_world_leave(w, DOCUMENT_B);
	tier_world_leave(w, "1234");
	tier_evict(w);
	assert_int_equal(tier_info_of(w, 'A').n_pages_in[STORE_HOST], 5);
	assert_int_equal(tier_info_of(w, '1').n_pages_in[STORE_HOST], 1);
	tier_world_let_go(w);
	tier_world_settle(w);
	store_seq_close(a, w->now_ns);
	assert_int_equal(in_file(state, DOCUMENT_A), 16);
}

static void leave_of(struct tier_world *w, uint64_t domain, const char *document)
{
	struct store_seq *q =
		tier_world_seq(w, (struct tier_world_key){.domain = domain}, document, NULL);

	assert_int_equal(tier_world_publish(w, q, document), 0);
	store_seq_close(q, w->now_ns);
}

/* While a page is written it is forgotten, as host memory is another's, and others follow in its
 * place: as many, so that all that differs is which tokens they are. */
static void test_a_page_in_the_place_of_one_that_is_written_is_not_it(void **state)
{
	struct tier_world *w =
		tier_world_of(state, (struct tier_world_options){.device_pages = 4,
								 .host_pages = 8,
								 .file_pages = 16,
								 .domain_host_pages = 1});

	tier_world_leave(w, "abcdefgh");
	assert_int_equal(store_evict(w->store, NULL, 1, 1), 1);
	store_tiers_poll(w->store, 1); /* both pages are on their way to the file */
	w->downs.held = true; /* and stay so: the first is copied down before */
	tier_world_leave(w, "1234");
	assert_int_equal(tier_world_cached(w, any, "abcdZ"), 4); /* which is younger now */
	leave_of(w, 2, "ABCDEFGHIJKL"); /* in the place of 1234, which goes where efgh is */
	assert_int_equal(tier_info_of(w, 'a').n_tokens, 4);
	leave_of(w, 1, "abcdstuv");
	tier_world_let_go(w);
	store_tiers_flush(w->store);
	tier_world_settle(w);
	assert_int_equal(in_file(state, "abcdstuvw"), 8);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tier_set_up, tier_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_page_that_is_still_copied_is_written_later),
		TEST(test_what_finds_no_way_to_the_file_is_given_up),
		TEST(test_passing_pages_take_no_room_from_others),
		TEST(test_a_page_in_the_place_of_one_that_is_written_is_not_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
