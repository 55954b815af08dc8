/*
 * plans_test.c - plans on a device share so much of its memory. The CUDA runtime's part is played
 * here: memory that is counted, a stream on which kernels read what they were given until somebody
 * waits for it.
 */
#include "kernels/cuda/batch/batch_impl.h"
#include "kernels/plan/plan.h"
#include "oracle.h"
#include "tests/sanitized.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u
#define BLOCKS_MAX 64u
#define SMALL 4096u /* tokens; next to nothing on the device */
#define LARGE (4u << 20) /* a plan of 12 MiB */
#define HUGE (24u << 20) /* one that is more than all may have */

/* ---- the device ----------------------------------------------------------------------------- */

struct block {
	void *at; /* owned */
	size_t bytes;
	bool read; /* by what runs */
};

static struct {
	struct block blocks[BLOCKS_MAX];
	size_t bytes, peak_bytes;
	uint32_t n_waits;
	bool full;
} device;

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	for (uint32_t i = 0; i < BLOCKS_MAX && !device.full; i++) {
		if (device.blocks[i].at)
			continue;
		assert_non_null(*ret = malloc(1)); /* an address; nobody writes there */
		device.blocks[i] = (struct block){*ret, bytes, false};
		device.bytes += bytes;
		if (device.bytes > device.peak_bytes)
			device.peak_bytes = device.bytes;
		return cudaSuccess;
	}
	return cudaErrorMemoryAllocation;
}

static struct block *block_at(const void *at)
{
	for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
		if (device.blocks[i].at == at)
			return &device.blocks[i];
	}
	fail_msg("%p is no memory of the device", at);
	return NULL;
}

cudaError_t cudaFree(void *at)
{
	struct block *block;

	if (!at)
		return cudaSuccess;
	block = block_at(at);
	assert_false(block->read);
	device.bytes -= block->bytes;
	free(at);
	*block = (struct block){0};
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	for (uint32_t i = 0; i < BLOCKS_MAX; i++)
		device.blocks[i].read = false;
	device.n_waits++;
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
	assert_non_null(*ret = malloc(bytes));
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
	free(at);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
	(void)flags;
	*ret = NULL;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

/* ---- a batch -------------------------------------------------------------------------------- */

static struct pool pool = {.bytes = 64 * 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 1024};
static struct batch batch;
static const struct work_shape shape = {1, 8, 8, 128, PAGE_TOKENS, WORK_BF16, 0.0883883f, 0, 0};

static int setup(void **state)
{
	(void)state;
	memset(&device, 0, sizeof(device));
	batch = (struct batch){.pool = &pool,
			       .costs = costs_find(CODE_WGMMA),
			       .n_blocks = 130,
			       .all_blocks = 132,
			       .code = CODE_WGMMA};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	cudaStreamSynchronize(NULL);
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		plan_drop_tails(&batch.plans[i]);
		cudaFree(batch.plans[i].device.at);
	}
	schedule_done(&batch.schedule);
	ahead_done(&batch);
	assert_int_equal(device.bytes, 0);
	return 0;
}

static void next_batch(void)
{
	batch.uses_before = batch.uses;
}

/* The last rows of so many tokens. */
static struct work_list list_make_rows(uint32_t n_tokens, uint32_t n_rows, struct work_tree *tree,
				       struct work_node *node, struct work_query *query)
{
	uint32_t n = n_tokens / PAGE_TOKENS;
	struct work_slice *slices = malloc(n * sizeof(*slices));
	struct work_list list = {0};
	struct plan_config config;

	assert_non_null(slices);
	for (uint32_t i = 0; i < n; i++)
		slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	*node = (struct work_node){WORK_NONE, 0, n_tokens, 0, n};
	*query = (struct work_query){.node = 0, .pos = n_tokens - n_rows, .n_rows = n_rows};
	*tree = (struct work_tree){node, slices, query, 1, n, 1};
	plan_config_init(&config, PLAN_AUTO, &shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, tree, &list), 0);
	return list;
}

static struct work_list list_make(uint32_t n_tokens, struct work_tree *tree, struct work_node *node,
				  struct work_query *query)
{
	return list_make_rows(n_tokens, 1, tree, node, query);
}

/* As a job of the batch at hand does: its kernels read the plan. */
static int use_for(uint64_t id, uint32_t n_tokens, uint64_t replaces)
{
	struct batch_plan *plan = plan_find(&batch, id, &shape);
	struct work_tree tree = {0};
	struct work_node node;
	struct work_query query;
	struct work_list list = {0};
	int r = 0;

	if (!plan) {
		list = list_make(n_tokens, &tree, &node, &query);
		struct backend_job job = {.shape = &shape,
					  .tree = &tree,
					  .list = &list,
					  .plan_id = id,
					  .replaces = replaces};

		r = plan_prepare(&batch, &job, NULL, &plan);
		plan_list_done(&list);
		free((void *)(uintptr_t)tree.slices);
	}
	if (r)
		return r;
	assert_true(plan->device.bytes >= plan_bytes(&batch.schedule) || !list.n_rows);
	plan->used = plan->plan_id ? ++batch.uses : 0;
	block_at(plan->device.at)->read = true;
	return 0;
}

static int use(uint64_t id, uint32_t n_tokens)
{
	return use_for(id, n_tokens, 0);
}

static bool is_kept(uint64_t id)
{
	return plan_find(&batch, id, &shape) != NULL;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_small_plans_are_kept_as_many_as_there_may_be(void **state)
{
	(void)state;
	for (uint64_t id = 1; id <= BATCH_PLANS; id++) {
		next_batch();
		assert_int_equal(use(id, SMALL), 0);
	}
	for (uint64_t id = 1; id <= BATCH_PLANS; id++)
		assert_true(is_kept(id));
	next_batch();
	assert_int_equal(use(BATCH_PLANS + 1, SMALL), 0);
	assert_false(is_kept(1));
	assert_true(is_kept(2));
}

static void test_a_small_plan_takes_the_place_of_another_without_a_wait(void **state)
{
	(void)state;
	for (uint64_t id = 1; id <= BATCH_PLANS; id++)
		assert_int_equal(use(id, SMALL), 0);
	device.n_waits = 0;
	next_batch();
	assert_int_equal(use(BATCH_PLANS + 1, SMALL), 0);
	assert_int_equal(device.n_waits, 0);
}

static void test_a_plan_that_replaces_another_is_in_its_place(void **state)
{
	(void)state;
	assert_int_equal(use(1, SMALL), 0);
	next_batch();
	assert_int_equal(use(2, SMALL), 0);
	next_batch();
	device.full = true; /* no memory is asked for */
	assert_int_equal(use_for(3, SMALL, 1), 0);
	assert_false(is_kept(1));
	assert_true(is_kept(2) && is_kept(3));
	next_batch();
	assert_int_equal(use_for(4, SMALL, 3), 0);
	assert_true(is_kept(2) && is_kept(4));
	device.full = false;
}

static void test_but_not_where_that_is_used_or_too_small_or_gone(void **state)
{
	(void)state;
	next_batch();
	assert_int_equal(use(1, SMALL), 0);
	assert_int_equal(use_for(2, SMALL, 1), 0);
	assert_true(is_kept(1) && is_kept(2));
	next_batch();
	assert_int_equal(use_for(3, LARGE, 1), 0);
	assert_int_equal(use_for(4, SMALL, 100), 0);
	assert_true(is_kept(1) && is_kept(2) && is_kept(3) && is_kept(4));
}

static void test_large_plans_stay_within_their_bound(void **state)
{
	(void)state;
	for (uint64_t id = 1; id <= 40; id++) {
		next_batch();
		assert_int_equal(use(id, LARGE), 0);
		assert_true(device.bytes <= BATCH_PLANS_BYTES);
	}
	assert_true(device.peak_bytes <= BATCH_PLANS_BYTES);
	assert_true(device.bytes > BATCH_PLANS_BYTES / 2);
}

static void test_a_large_plan_takes_the_place_of_one_like_it_without_a_wait(void **state)
{
	(void)state;
	for (uint64_t id = 1; id <= 8; id++) {
		next_batch();
		assert_int_equal(use(id, LARGE), 0);
	}
	device.n_waits = 0;
	next_batch();
	assert_int_equal(use(9, LARGE), 0);
	assert_int_equal(device.n_waits, 0);
}

static void test_the_one_that_was_used_longest_ago_goes_first(void **state)
{
	uint64_t last = BATCH_PLANS_BYTES / (16 * MIB); /* 12 MiB and what a granule leaves */

	(void)state;
	for (uint64_t id = 1; id <= last; id++) {
		next_batch();
		assert_int_equal(use(id, LARGE), 0);
	}
	next_batch();
	assert_int_equal(use(1, LARGE), 0);
	for (uint64_t id = last + 1; is_kept(2); id++) {
		next_batch();
		assert_int_equal(use(id, LARGE), 0);
	}
	assert_true(is_kept(1));
}

static void test_what_the_batch_at_hand_uses_stays(void **state)
{
	(void)state;
	next_batch();
	for (uint64_t id = 1; id <= 8; id++)
		assert_int_equal(use(id, LARGE), 0);
	for (uint64_t id = 1; id <= 8; id++)
		assert_true(is_kept(id));
	assert_true(device.bytes > BATCH_PLANS_BYTES);
	next_batch();
	assert_int_equal(use(9, LARGE), 0);
	assert_true(device.bytes <= BATCH_PLANS_BYTES);
}

static void test_one_larger_than_all_may_be_is_there_by_itself(void **state)
{
	(void)state;
	assert_int_equal(use(1, SMALL), 0);
	next_batch();
	assert_int_equal(use(2, HUGE), 0);
	assert_true(is_kept(2));
	assert_false(is_kept(1));
	assert_true(device.bytes > BATCH_PLANS_BYTES);
	next_batch();
	assert_int_equal(use(3, SMALL), 0);
	assert_true(is_kept(3));
	assert_false(is_kept(2));
	assert_true(device.bytes <= MIB);
}

static void test_a_device_without_room_says_so_and_goes_on(void **state)
{
	(void)state;
	assert_int_equal(use(1, SMALL), 0);
	device.full = true;
	next_batch();
	assert_int_equal(use(2, LARGE), -ENOMEM);
	assert_false(is_kept(2));
	device.full = false;
	next_batch();
	assert_int_equal(use(2, LARGE), 0);
	assert_true(is_kept(2));
}

/* Of any sizes, several a batch. */
static void test_any_plans_stay_within_their_bound_between_batches(void **state)
{
	static const uint32_t sizes[] = {SMALL, 1u << 19, 1u << 20, 1u << 21, LARGE};
	struct oracle_random random = oracle_seed(__func__);
	uint32_t n_of[64];

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		n_of[i] = sizes[oracle_below(&random, 5)];
	for (uint32_t i = 0; i < ROUNDS(60u, 20u); i++) {
		size_t own = 0;

		next_batch();
		for (uint32_t n = 1 + oracle_below(&random, 3); n > 0; n--) {
			uint32_t id = oracle_below(&random, 64);

			assert_int_equal(use(1 + id, n_of[id]), 0);
			own += plan_find(&batch, 1 + id, &shape)->device.bytes;
		}
		assert_true(device.bytes <= (own > BATCH_PLANS_BYTES ? own : BATCH_PLANS_BYTES));
	}
}

/* ---- made ahead ----------------------------------------------------------------------------- */

/* One row on SMALL tokens, whose next ones come in pages of their own. */
struct ahead {
	struct work_tree tree;
	struct work_node node;
	struct work_query query;
	struct work_list list;
	struct work_slice slot;
	struct backend_io io;
	struct backend_job job;
};

static void ahead_init_rows(struct ahead *a, uint64_t id, uint32_t n_rows)
{
	memset(a, 0, sizeof(*a));
	a->list = list_make_rows(SMALL, n_rows, &a->tree, &a->node, &a->query);
	a->io = (struct backend_io){.slots = &a->slot, .n_slots = 1};
	a->job = (struct backend_job){
		.shape = &shape, .tree = &a->tree, .list = &a->list, .io = &a->io, .plan_id = id};
}

static void ahead_init(struct ahead *a, uint64_t id)
{
	ahead_init_rows(a, id, 1);
}

static void ahead_free(struct ahead *a)
{
	plan_list_done(&a->list);
	free((void *)(uintptr_t)a->tree.slices);
}

/* By n tokens. */
static int take_in(struct ahead *a, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && r >= 0; i++) {
		uint32_t pos = ++a->list.rows[0].pos;

		a->slot = (struct work_slice){1000 + pos / PAGE_TOKENS,
					      (uint16_t)(pos % PAGE_TOKENS), 1};
		r = batch_advance(&batch, &a->job);
		a->list.rows[0].pos -= r < 0;
	}
	return r;
}

static void is_what_is_asked_for(uint32_t n_rows, uint32_t n_tails)
{
	struct schedule fresh = {0};
	struct batch_plan *plan;
	struct schedule_want want;
	struct ahead a;

	ahead_init_rows(&a, 7, n_rows);
	want = plan_want(&batch, &a.job, batch.all_blocks);
	assert_int_equal(schedule_make(&fresh, &want), 0);
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	a.list.n_items = 0; /* nothing could be made of it now */
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, &plan), 0);
	for (uint32_t i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		assert_int_equal(batch.schedule.n[i], fresh.n[i]);
		assert_memory_equal(batch.schedule.arrays[i].at, fresh.arrays[i].at,
				    fresh.n[i] * schedule_entry_bytes((enum schedule_array)i));
	}
	assert_int_equal(plan->attend.n_work_tiles, fresh.n[SCHEDULE_WORK_TILES]);
	assert_int_equal(plan->n_tails, n_tails);
	assert_true(is_kept(7));
	assert_null(ahead_find(&batch, &a.job));
	schedule_done(&fresh);
	ahead_free(&a);
}

static void test_a_plan_made_ahead_is_what_is_asked_for(void **state)
{
	(void)state;
	is_what_is_asked_for(1, 1);
}

/* It takes in no tokens. */
static void test_so_is_that_of_a_prompt(void **state)
{
	(void)state;
	is_what_is_asked_for(200, 0);
}

static void test_it_takes_in_tokens_before_the_device_has_it(void **state)
{
	struct batch_plan *plan;
	struct ahead a;

	(void)state;
	ahead_init(&a, 7);
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	assert_int_equal(take_in(&a, 12), 0);
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, &plan), 0);
	assert_int_equal(plan->tails[0].used, 2);
	assert_int_equal(plan->growth.n_patches, 2 * 6 + 1); /* two KV blocks, one work tile */
	schedule_growth_written(&plan->growth);
	assert_int_equal(take_in(&a, 12), 0);
	assert_int_equal(take_in(&a, 1), BACKEND_SOON);
	assert_int_equal(plan->tails[0].used, 4);
	assert_int_equal(take_in(&a, 7), BACKEND_SOON);
	assert_int_equal(take_in(&a, 1), -ESTALE);
	assert_false(is_kept(7));
	ahead_free(&a);
}

static void test_the_last_that_was_prepared_is_there(void **state)
{
	struct ahead a;

	(void)state;
	ahead_init(&a, 7);
	assert_int_equal(take_in(&a, 1), -ESTALE);
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	a.job.plan_id = 8;
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	a.job.plan_id = 7;
	assert_int_equal(take_in(&a, 1), -ESTALE);
	a.job.plan_id = 8;
	assert_int_equal(take_in(&a, 1), 0);
	a.job.plan_id = 0;
	assert_int_equal(batch_make_ahead(&batch, &a.job), -ESTALE);
	ahead_free(&a);
}

/* Half as much again, but whole granules of what is large. */
static void test_a_buffers_room_is_some_more_but_nothing_large(void **state)
{
	(void)state;
	assert_int_equal(queue_room(1000), 1500);
	for (size_t n = 1; n < 4; n++) {
		assert_int_equal(queue_room(n * QUEUE_GRANULE), n * QUEUE_GRANULE);
		assert_int_equal(queue_room(n * QUEUE_GRANULE + 1), (n + 1) * QUEUE_GRANULE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_small_plans_are_kept_as_many_as_there_may_be,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_small_plan_takes_the_place_of_another_without_a_wait, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_that_replaces_another_is_in_its_place,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_but_not_where_that_is_used_or_too_small_or_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_large_plans_stay_within_their_bound, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_a_large_plan_takes_the_place_of_one_like_it_without_a_wait, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_the_one_that_was_used_longest_ago_goes_first,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_the_batch_at_hand_uses_stays, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_one_larger_than_all_may_be_is_there_by_itself,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_device_without_room_says_so_and_goes_on,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_any_plans_stay_within_their_bound_between_batches, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_made_ahead_is_what_is_asked_for, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_so_is_that_of_a_prompt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_it_takes_in_tokens_before_the_device_has_it,
						setup, teardown),
		cmocka_unit_test(test_a_buffers_room_is_some_more_but_nothing_large),
		cmocka_unit_test_setup_teardown(test_the_last_that_was_prepared_is_there, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
