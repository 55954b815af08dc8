/*
 * schedule_cache_test.c - schedules that are found by what they were made from: the same for the
 * same, never another's, and no more than the cache may have.
 */
#include "kernels/cuda/batch/schedule_cache.h"
#include "kernels/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE_TOKENS 64u
#define N_TOKENS 8192u
#define LARGE_TOKENS (1u << 20) /* with LARGE_ROWS a schedule of 25 MB */
#define LARGE_ROWS 256u
#define N_PAGES (LARGE_TOKENS / PAGE_TOKENS)

static const struct work_shape shape = {1, 32, 8, 128, PAGE_TOKENS, WORK_BF16, 0.0883883f, 0, 0};
static struct schedule_cache cache;
static struct schedule making;

/* The rows at the end of a path. */
static struct path {
	struct work_slice slices[N_PAGES];
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	struct work_list list;
	struct schedule_want want;
} path;

static void path_plan(uint32_t n_tokens, uint32_t n_rows)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	path.node = (struct work_node){WORK_NONE, 0, n_tokens, 0, n_tokens / PAGE_TOKENS};
	path.query = (struct work_query){.pos = n_tokens - n_rows, .n_rows = n_rows};
	path.tree = (struct work_tree){&path.node, path.slices, &path.query, 1, N_PAGES, 1};
	assert_int_equal(plan_make(&config, &path.tree, &path.list), 0);
	path.want = (struct schedule_want){.shape = &shape,
					   .list = &path.list,
					   .pages = {4096, 64, UINT64_C(64) * 4096},
					   .costs = costs_find(CODE_WGMMA),
					   .n_blocks = 132,
					   .code = CODE_WGMMA};
}

static int setup(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < N_PAGES; i++)
		path.slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	path_plan(N_TOKENS, 100);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	schedule_cache_done(&cache);
	schedule_done(&making);
	plan_list_done(&path.list);
	memset(&path, 0, sizeof(path));
	return 0;
}

/* What path wants, which is what is made of it now. Its id; 0: it is not kept. */
static uint64_t get(void)
{
	struct schedule fresh = {0};
	const struct schedule *got;
	uint64_t id;

	assert_int_equal(schedule_cache_get(&cache, &path.want, &making, &got, &id), 0);
	assert_int_equal(schedule_make(&fresh, &path.want), 0);
	for (uint32_t i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		assert_int_equal(got->n[i], fresh.n[i]);
		assert_memory_equal(got->arrays[i].at, fresh.arrays[i].at,
				    fresh.n[i] * schedule_entry_bytes((enum schedule_array)i));
	}
	assert_int_equal(got->n_parts, fresh.n_parts);
	assert_int_equal(got->most_parts, fresh.most_parts);
	assert_true(got->n_kv_blocks == fresh.n_kv_blocks);
	assert_ptr_equal(got->tails, NULL);
	assert_true((got == &making) == (id == 0));
	schedule_done(&fresh);
	return id;
}

/* Of a prompt of its own. */
static uint64_t get_of(uint32_t prompt)
{
	path.slices[0].page = N_PAGES + prompt;
	path_plan(N_TOKENS, 100);
	return get();
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_the_same_is_found(void **state)
{
	uint64_t first = get();

	(void)state;
	assert_true(first > 0);
	path_plan(N_TOKENS, 100); /* anew, as each layer does */
	assert_true(get() == first);
	assert_true(get() == first);
}

static void test_what_differs_is_not(void **state)
{
	uint64_t first = get(), last = first;
	struct costs costs = *costs_find(CODE_WGMMA);
	struct work_shape other = shape;

	(void)state;
	path_plan(N_TOKENS, 99); /* a row less */
	assert_true(get() == ++last);
	path_plan(N_TOKENS - PAGE_TOKENS, 100);
	assert_true(get() == ++last);
	path.slices[17].page = N_PAGES;
	path_plan(N_TOKENS, 100);
	assert_true(get() == ++last);
	path.slices[17].page = 17;
	path_plan(N_TOKENS, 100);
	path.list.rows[5].low = 64; /* it does not see the first page */
	assert_true(get() == ++last);
	path_plan(N_TOKENS, 100);
	path.want.n_blocks--;
	assert_true(get() == ++last);
	path.want.n_blocks++;
	path.want.choice.share = 1.5;
	path.want.choice.work_tile_tokens = 16;
	assert_true(get() == ++last);
	path.want.choice = (struct schedule_choice){0};
	costs.wide_tile_ns *= 2;
	path.want.costs = &costs;
	assert_true(get() == ++last);
	path.want.costs = costs_find(CODE_WGMMA);
	other.n_kv_heads = 4;
	path.want.shape = &other;
	assert_true(get() == ++last);
	path.want.shape = &shape;
	assert_true(get() == first);
}

static void test_of_more_than_there_is_room_for_as_many_are_found(void **state)
{
	const uint32_t n = SCHEDULE_CACHE_ENTRIES + 4;
	uint32_t n_found = 0;

	(void)state;
	for (uint32_t i = 0; i < n; i++)
		assert_true((get_of(i) > 0) == (i < SCHEDULE_CACHE_ENTRIES));
	for (uint32_t i = 0; i < n; i++)
		n_found += get_of(i) > 0;
	assert_int_equal(n_found, SCHEDULE_CACHE_ENTRIES);
}

static void test_what_nobody_asks_for_makes_room(void **state)
{
	uint64_t first[SCHEDULE_CACHE_ENTRIES], last = 0;

	(void)state;
	for (uint32_t i = 0; i < SCHEDULE_CACHE_ENTRIES; i++)
		last = first[i] = get_of(i);
	for (uint32_t i = 0; i < SCHEDULE_CACHE_PATIENCE; i++)
		assert_true(get_of(3) == first[3]);
	assert_true(get_of(100) > last);
	assert_true(get_of(101) > last);
	assert_true(get_of(3) == first[3]);
	assert_true(get_of(0) != first[0] && get_of(1) != first[1]);
}

/* A large one, on a page of its own: no row sees the first token, so strips share no KV tiles. */
static uint64_t get_large(uint32_t i)
{
	path.slices[0].page = N_PAGES + i;
	path_plan(LARGE_TOKENS, LARGE_ROWS);
	for (uint32_t row = 0; row < path.list.n_rows; row++)
		path.list.rows[row].low = 1;
	return get();
}

/* Each more than a third of what all may have. */
static void test_no_more_memory_than_all_may_have(void **state)
{
	uint32_t n_kept = 0;

	(void)state;
	for (uint32_t i = 0; i < 8; i++) {
		n_kept += get_large(i) > 0;
		assert_true(cache.bytes <= SCHEDULE_CACHE_BYTES);
	}
	assert_in_range(n_kept, 1, 3);
	for (uint32_t i = 0; i < SCHEDULE_CACHE_PATIENCE; i++)
		get_of(0);
	assert_true(get_large(8) > 0);
	assert_true(cache.bytes <= SCHEDULE_CACHE_BYTES);
	schedule_cache_done(&cache);
	assert_int_equal(cache.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_the_same_is_found, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_differs_is_not, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_of_more_than_there_is_room_for_as_many_are_found, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_nobody_asks_for_makes_room, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_no_more_memory_than_all_may_have, setup,
						teardown),
	};

	return cmocka_run_group_tests_name("schedule cache", tests, NULL, NULL);
}
