/*
 * plans_test.c - plans on a device share so much of its memory. The CUDA runtime's part is played
 * (plans_fixture.h).
 */
#include "plans_fixture.h"

#include "oracle.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROWS 1024u /* of what is larger than SMALL */
#define LARGE (1u << 19) /* tokens: a plan of 12 MiB */
#define HUGE (33u << 17) /* one that is more than all may have */

/* As a job of the batch at hand does: its kernels read the plan. */
static int use_for(uint64_t id, uint32_t n_tokens, uint64_t replaces)
{
	struct batch_plan *plan = plan_find(&batch, id, &shape);
	const struct schedule *schedule = NULL;
	struct rows rows;
	int r = 0;

	if (!plan) {
		rows_init(&rows, id, n_tokens, n_tokens > SMALL ? ROWS : 1);
		rows.job.replaces = replaces;
		r = plan_prepare(&batch, &rows.job, NULL, &plan, &schedule);
		rows_free(&rows);
	}
	if (r)
		return r;
	assert_true(!schedule || plan->device.bytes >= plan_bytes(schedule));
	plan_use(&batch, plan);
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
	static const uint32_t sizes[] = {SMALL, 1u << 16, 1u << 17, 1u << 18, LARGE};
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

/* By n tokens. */
static int take_in(struct rows *a, uint32_t n)
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
	const struct schedule *schedule;
	struct batch_plan *plan;
	struct schedule_want want;
	struct rows a;

	rows_init(&a, 7, SMALL, n_rows);
	want = plan_want(&batch, &a.job, batch.all_blocks);
	assert_int_equal(schedule_make(&fresh, &want), 0);
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	a.list.n_items = 0; /* nothing could be made of it now */
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, &plan, &schedule), 0);
	is_same_schedule(schedule, &fresh);
	assert_int_equal(plan->attend.n_work_tiles, fresh.n[SCHEDULE_WORK_TILES]);
	assert_int_equal(plan->n_tails, n_tails);
	assert_true(is_kept(7));
	assert_null(ahead_find(&batch, &a.job));
	schedule_done(&fresh);
	rows_free(&a);
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
	const struct schedule *schedule;
	struct batch_plan *plan;
	struct rows a;

	(void)state;
	rows_init(&a, 7, SMALL, 1);
	assert_int_equal(batch_make_ahead(&batch, &a.job), 0);
	assert_int_equal(take_in(&a, 12), 0);
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, &plan, &schedule), 0);
	assert_int_equal(plan->tails[0].used, 2);
	assert_int_equal(plan->growth.n_patches, 2 * 6 + 1); /* two KV blocks, one work tile */
	schedule_growth_written(&plan->growth);
	assert_int_equal(take_in(&a, 12), 0);
	assert_int_equal(take_in(&a, 1), BACKEND_SOON);
	assert_int_equal(plan->tails[0].used, 4);
	assert_int_equal(take_in(&a, 7), BACKEND_SOON);
	assert_int_equal(take_in(&a, 1), -ESTALE);
	assert_false(is_kept(7));
	rows_free(&a);
}

static void test_the_last_that_was_prepared_is_there(void **state)
{
	struct rows a;

	(void)state;
	rows_init(&a, 7, SMALL, 1);
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
	rows_free(&a);
}

/* ---- rows that come once a layer ------------------------------------------------------------ */

/* Of a prompt's next layer. Returns whether the device had to get its schedule. */
static bool layer_of(uint32_t n_tokens, uint32_t n_rows, struct batch_plan **ret)
{
	struct schedule fresh = {0};
	const struct schedule *schedule;
	struct schedule_want want;
	struct rows a;

	next_batch();
	rows_init(&a, 0, n_tokens, n_rows);
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, ret, &schedule), 0);
	want = plan_want(&batch, &a.job, batch.n_blocks);
	assert_int_equal(schedule_make(&fresh, &want), 0);
	if (schedule)
		is_same_schedule(schedule, &fresh);
	assert_int_equal((*ret)->n_parts, fresh.n_parts);
	assert_true((*ret)->n_kv_blocks == fresh.n_kv_blocks);
	assert_int_equal((*ret)->attend.n_kv_tiles, fresh.n[SCHEDULE_KV_TILES]);
	assert_int_equal((*ret)->attend.n_work_tiles, fresh.n[SCHEDULE_WORK_TILES]);
	plan_use(&batch, *ret);
	block_at((*ret)->device.at)->read = true;
	schedule_done(&fresh);
	rows_free(&a);
	return schedule;
}

static bool layer(uint32_t n_rows, struct batch_plan **ret)
{
	return layer_of(SMALL, n_rows, ret);
}

static void test_a_prompts_next_layer_finds_its_schedule_on_the_device(void **state)
{
	struct batch_plan *first, *plan;

	(void)state;
	assert_true(layer(200, &first));
	assert_false(layer(200, &plan));
	assert_ptr_equal(plan, first);
	assert_false(layer(200, &plan));
	assert_ptr_equal(plan, first);
}

/* What is decoded keeps its plans; of prompts that go round some are found. */
static void test_prompts_have_some_of_the_places(void **state)
{
	const uint32_t n = BATCH_UNNAMED + 4;
	uint32_t n_sent = 0;
	struct batch_plan *plan;

	(void)state;
	for (uint64_t id = 1; id <= BATCH_PLANS - BATCH_UNNAMED; id++)
		assert_int_equal(use(id, SMALL), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_true(layer(100 + i, &plan));
	for (uint32_t i = 0; i < n; i++)
		n_sent += layer(100 + i, &plan);
	assert_int_equal(n_sent, n - BATCH_UNNAMED);
	for (uint64_t id = 1; id <= BATCH_PLANS - BATCH_UNNAMED; id++)
		assert_true(is_kept(id));
}

static void test_those_that_are_done_leave_theirs_to_others(void **state)
{
	struct batch_plan *plan;

	(void)state;
	for (uint32_t i = 0; i < BATCH_UNNAMED; i++)
		assert_true(layer(100 + i, &plan));
	for (uint32_t i = 0; i < BATCH_UNNAMED_PATIENCE; i++)
		assert_false(layer(107, &plan));
	assert_true(layer(200, &plan));
	assert_true(layer(201, &plan));
	assert_false(layer(200, &plan));
	assert_false(layer(201, &plan));
	assert_false(layer(107, &plan));
}

static void test_which_they_leave_to_what_is_decoded(void **state)
{
	struct batch_plan *plan;

	(void)state;
	for (uint32_t i = 0; i < BATCH_UNNAMED; i++)
		assert_true(layer(100 + i, &plan));
	for (uint64_t id = 1; id <= BATCH_PLANS; id++) {
		next_batch();
		assert_int_equal(use(id, SMALL), 0);
	}
	for (uint64_t id = 1; id <= BATCH_PLANS; id++)
		assert_true(is_kept(id));
	assert_true(layer(100, &plan)); /* sent again */
	assert_false(layer(100, &plan));
}

static size_t unnamed_bytes(void)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < BATCH_PLANS; i++)
		bytes += batch.plans[i].plan_id == 0 ? batch.plans[i].device.bytes : 0;
	return bytes;
}

#define N_LARGE 5u /* that are kept in host memory */

/* Beside so many small ones. What is decoded makes no room for them. */
static void large_ones(uint32_t n_small)
{
	struct batch_plan *plan;

	for (uint64_t id = 1; id <= 3; id++)
		assert_int_equal(use(id, LARGE), 0);
	for (uint32_t i = 0; i < n_small; i++)
		assert_true(layer(100 + i, &plan));
	for (uint32_t i = 0; i < N_LARGE; i++) {
		assert_true(layer_of(LARGE, ROWS - i, &plan));
		assert_true(unnamed_bytes() <= BATCH_UNNAMED_BYTES);
	}
	assert_true(device.peak_bytes <= BATCH_PLANS_BYTES);
	for (uint64_t id = 1; id <= 3; id++)
		assert_true(is_kept(id));
}

static void test_large_ones_have_a_part_of_the_memory(void **state)
{
	struct batch_plan *plan;

	(void)state;
	large_ones(0);
	assert_false(layer_of(LARGE, ROWS, &plan));
	assert_false(layer_of(LARGE, ROWS - 1, &plan));
}

static void test_and_some_of_it_beside_small_ones(void **state)
{
	struct batch_plan *plan;

	(void)state;
	large_ones(BATCH_UNNAMED);
	assert_false(layer_of(LARGE, ROWS - (N_LARGE - 1), &plan));
	assert_false(layer(100, &plan));
}

/* Nor in place of one that will. */
static void test_what_will_not_come_again_is_not_kept(void **state)
{
	const struct schedule *schedule;
	const bool wanted[1] = {true};
	struct batch_plan *plan;
	struct rows a;

	(void)state;
	for (uint32_t i = 0; i < BATCH_UNNAMED; i++)
		assert_true(layer(100 + i, &plan));
	for (uint32_t i = 0; i < 3; i++) {
		next_batch();
		rows_init(&a, 0, SMALL, 300);
		assert_int_equal(plan_prepare(&batch, &a.job, wanted, &plan, &schedule), 0);
		assert_ptr_equal(schedule, &batch.schedule);
		plan_use(&batch, plan);
		rows_free(&a);
	}
	for (uint32_t i = 0; i < BATCH_UNNAMED; i++)
		assert_false(layer(100 + i, &plan));
}

static void test_nor_with_other_blocks_or_rows_of_some_heads(void **state)
{
	const struct schedule *schedule;
	struct batch_plan *plan;
	struct rows a;

	(void)state;
	assert_true(layer(200, &plan));
	batch.n_blocks--;
	assert_true(layer(200, &plan));
	assert_false(layer(200, &plan));
	rows_init(&a, 0, SMALL, 200);
	a.job.n_heads = 1;
	assert_int_equal(plan_prepare(&batch, &a.job, NULL, &plan, &schedule), 0);
	assert_ptr_equal(schedule, &batch.schedule);
	rows_free(&a);
}

/* As where sending it failed. */
static void test_a_plan_that_is_forgotten_is_sent_again(void **state)
{
	struct batch_plan *plan;

	(void)state;
	assert_true(layer(200, &plan));
	plan_forget(plan);
	assert_true(layer(200, &plan));
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
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_small_plan_takes_the_place_of_another_without_a_wait, plans_setup,
			plans_teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_that_replaces_another_is_in_its_place,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(
			test_but_not_where_that_is_used_or_too_small_or_gone, plans_setup,
			plans_teardown),
		cmocka_unit_test_setup_teardown(test_large_plans_stay_within_their_bound,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_large_plan_takes_the_place_of_one_like_it_without_a_wait,
			plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_the_one_that_was_used_longest_ago_goes_first,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_what_the_batch_at_hand_uses_stays, plans_setup,
						plans_teardown),
		cmocka_unit_test_setup_teardown(test_one_larger_than_all_may_be_is_there_by_itself,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_a_device_without_room_says_so_and_goes_on,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(
			test_any_plans_stay_within_their_bound_between_batches, plans_setup,
			plans_teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_made_ahead_is_what_is_asked_for,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_so_is_that_of_a_prompt, plans_setup,
						plans_teardown),
		cmocka_unit_test_setup_teardown(test_it_takes_in_tokens_before_the_device_has_it,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_prompts_next_layer_finds_its_schedule_on_the_device, plans_setup,
			plans_teardown),
		cmocka_unit_test_setup_teardown(test_prompts_have_some_of_the_places, plans_setup,
						plans_teardown),
		cmocka_unit_test_setup_teardown(test_and_some_of_it_beside_small_ones, plans_setup,
						plans_teardown),
		cmocka_unit_test_setup_teardown(test_those_that_are_done_leave_theirs_to_others,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_what_will_not_come_again_is_not_kept,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_which_they_leave_to_what_is_decoded,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_large_ones_have_a_part_of_the_memory,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_nor_with_other_blocks_or_rows_of_some_heads,
						plans_setup, plans_teardown),
		cmocka_unit_test_setup_teardown(test_a_plan_that_is_forgotten_is_sent_again,
						plans_setup, plans_teardown),
		cmocka_unit_test(test_a_buffers_room_is_some_more_but_nothing_large),
		cmocka_unit_test_setup_teardown(test_the_last_that_was_prepared_is_there,
						plans_setup, plans_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
