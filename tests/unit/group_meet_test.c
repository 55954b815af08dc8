/*
 * group_meet_test.c - devices that meet, as GPUs do, here CPUs: they run behind the caller, and
 * rows are merged and written by their owners, not by the group.
 */
#include "kernels/group/group.h"
#include "meeting.h"
#include "world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define DEVICES MEETING_DEVICES
#define SHORT_MS 100u
/* It, the second that the group adds to it, and what threads may begin apart. */
#define TOO_LONG_MS 3000u
#define FAR_TOO_LONG_MS 30000u /* where these run late themselves, as others have the machine */

/* ---- worlds --------------------------------------------------------------------------------- */

struct meet_world {
	struct backend_ops ops;
	struct group_device devices[DEVICES];
	struct group_config group;
	struct world w;
	struct oracle_random random;
};

static void world_open(struct meet_world *m, enum work_split split, const char *name)
{
	struct world_want want = {.ops = &backend_group,
				  .group = &m->group,
				  .extent_bytes = 2 * MIB * DEVICES,
				  .shape = {.n_layers = 16,
					    .n_q_heads = 6,
					    .n_kv_heads = 3,
					    .head_dim = 64,
					    .page_tokens = 16,
					    .dtype = WORK_FP32,
					    .scale = 0.125f,
					    .split = split},
				  .n_nodes = 5,
				  .n_queries = 6,
				  .node_tokens = 120,
				  .drafts = true};

	*m = (struct meet_world){.ops = meeting_ops(), .random = oracle_seed(name)};
	for (uint32_t i = 0; i < DEVICES; i++)
		m->devices[i] = (struct group_device){&m->ops, NULL};
	m->group = (struct group_config){m->devices, DEVICES, SHORT_MS};
	meeting.n_behind = 0;
	world_init(&m->w, &want, &m->random);
}

/* What the device gave others. */
static uint64_t given(const struct meet_world *m, uint32_t device)
{
	struct group_stats stats;

	group_stats(m->w.backend, device, &stats);
	return stats.exchange_bytes;
}

static void check_world(struct meet_world *m)
{
	struct world *w = &m->w;
	struct world_answer answer;
	struct plan_config config;
	double lse, error;

	plan_config_init(&config, PLAN_AUTO, &w->shape, 4);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	world_run(w, &config, 0, w->tree.n_queries, &answer);
	error = world_error(w, 0, w->tree.n_queries, &answer, &lse);
	assert_true(error <= 2e-6 && lse <= 1e-5);
	world_answer_done(&answer);
}

static void test_they_answer_as_one(void **state)
{
	struct meet_world m;

	(void)state;
	for (int split = WORK_TOKENS; split <= WORK_HEADS; split++) {
		world_open(&m, (enum work_split)split, __func__);
		assert_string_equal(group_notice(m.w.backend), "they meet slowly");
		check_world(&m);
		world_done(&m.w);
	}
}

/* A batch that reads the first query alone, its output at o. */
static int submit_one(struct meet_world *m, uint64_t o, uint64_t *ret_id)
{
	struct world *w = &m->w;
	struct work_tree tree = w->tree;
	struct work_list list = {0};
	uint64_t row_bytes = world_row_values(w) * sizeof(float);
	struct backend_io io = {.q = world_address(w, w->q_raw),
				.o = o,
				.q_stride = row_bytes,
				.o_stride = row_bytes};
	struct backend_job job = {.shape = &w->shape, .tree = &tree, .list = &list, .io = &io};
	struct backend_batch batch = {&job, 1};
	struct plan_config config;
	int r;

	tree.n_queries = 1;
	plan_config_init(&config, PLAN_AUTO, &w->shape, 4);
	config.tile_rows = w->ops->tile_rows(w->backend, &w->shape);
	assert_int_equal(plan_make(&config, &tree, &list), 0);
	r = w->ops->submit(w->backend, &batch, ret_id);
	plan_list_done(&list);
	return r;
}

static void test_rows_are_merged_where_the_arena_is_that_wants_them(void **state)
{
	struct meet_world m;
	struct backend_arena arena = {.device = {3}}, none = {.device = {9}};
	uint32_t before[DEVICES];
	uint64_t id, bytes;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	bytes = group_parts_bytes(&m.w.shape, m.w.queries[0].n_rows);
	assert_int_equal(m.w.ops->arena_new(m.w.backend, 2 * MIB, &none), -ENODEV);
	assert_int_equal(m.w.ops->arena_new(m.w.backend, 2 * MIB, &arena), 0);
	assert_int_equal(arena.base, meeting.ends[2].arena);
	for (uint32_t i = 0; i < DEVICES; i++)
		before[i] = meeting.ends[i].n_rows_written;
	assert_int_equal(submit_one(&m, arena.base, &id), 0);
	assert_int_equal(meeting.ends[0].n_rows_written, before[0]);
	assert_int_equal(meeting.ends[1].n_rows_written, before[1]);
	assert_int_equal(meeting.ends[2].n_rows_written, before[2] + m.w.queries[0].n_rows);
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_int_equal(given(&m, i), i == 2 ? 0 : bytes);
	m.w.ops->arena_free(m.w.backend, arena.base);
	world_done(&m.w);
}

static void test_devices_that_do_not_reach_each_other_have_no_arenas(void **state)
{
	struct backend_arena arena = {0};
	struct meet_world m;

	(void)state;
	meeting.apart = true;
	world_open(&m, WORK_TOKENS, __func__);
	meeting.apart = false;
	assert_int_equal(m.w.ops->arena_new(m.w.backend, 2 * MIB, &arena), -ENOTSUP);
	check_world(&m);
	world_done(&m.w);
}

static void test_a_batch_is_complete_when_it_is_on_all(void **state)
{
	struct meet_world m;
	uint64_t id = 0, done = 0, ids[3];
	void *o;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	o = world_alloc(&m.w, WORLD_ROWS * world_row_values(&m.w) * sizeof(float));
	meeting.n_behind = 2;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(submit_one(&m, world_address(&m.w, o), &ids[i]), 0);
	assert_int_equal(m.w.ops->completed(m.w.backend, &done), 0);
	assert_int_equal(done, ids[0]);
	meeting.n_behind = 0;
	assert_int_equal(m.w.ops->completed(m.w.backend, &done), 0);
	assert_int_equal(done, ids[2]);
	assert_true(ids[0] < ids[1] && ids[1] < ids[2] && id == 0);
	world_done(&m.w);
}

/* ---- plans that go on ----------------------------------------------------------------------- */

/* Two queries' next tokens, on pages 4 and 5. */
static int advance_two(struct meet_world *m)
{
	struct work_slice slots[] = {{4, 7, 1}, {5, 0, 1}};
	struct backend_io io[] = {{.slots = &slots[0], .n_slots = 1},
				  {.slots = &slots[1], .n_slots = 1}};
	struct work_query queries[2] = {{.n_rows = 1}, {.n_rows = 1}};
	struct work_tree tree = {.queries = queries, .n_queries = 2};
	struct work_row rows[2] = {{0, 0, 1}, {1, 0, 1}};
	struct work_list list = {.rows = rows, .n_rows = 2};
	struct backend_job job = {.shape = &m->w.shape,
				  .tree = &tree,
				  .list = &list,
				  .io = io,
				  .plan_id = 7,
				  .advanced = true};

	return m->w.ops->advance(m->w.backend, &job);
}

static void test_a_next_token_is_for_the_device_of_its_page(void **state)
{
	struct meet_world m;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	assert_int_equal(advance_two(&m), 0);
	assert_int_equal(meeting.ends[0].n_advanced, 0);
	assert_int_equal(meeting.ends[1].n_advanced, 1);
	assert_int_equal(meeting.ends[1].next_page, 4 / DEVICES);
	assert_int_equal(meeting.ends[2].n_advanced, 1);
	assert_int_equal(meeting.ends[2].next_page, 5 / DEVICES);
	world_done(&m.w);
}

static void test_a_next_token_is_for_all_who_share_heads(void **state)
{
	struct meet_world m;

	(void)state;
	world_open(&m, WORK_HEADS, __func__);
	assert_int_equal(advance_two(&m), 0);
	for (uint32_t i = 0; i < DEVICES; i++) {
		assert_int_equal(meeting.ends[i].n_advanced, 2);
		assert_int_equal(meeting.ends[i].next_page, 5);
	}
	world_done(&m.w);
}

static void test_a_plan_that_is_full_on_one_device_is_stale(void **state)
{
	struct meet_world m;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	meeting.full = true;
	assert_int_equal(advance_two(&m), -ESTALE);
	world_done(&m.w);
}

static void test_what_all_devices_refuse_changes_nothing(void **state)
{
	struct meet_world m;
	uint64_t id, first, done = 0;
	void *o;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	o = world_alloc(&m.w, WORLD_ROWS * world_row_values(&m.w) * sizeof(float));
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &first), 0);
	meeting.stale = true;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), -ESTALE);
	meeting.stale = false;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), 0);
	assert_int_equal(id, first + 1);
	assert_int_equal(m.w.ops->completed(m.w.backend, &done), 0);
	assert_int_equal(done, id);
	world_done(&m.w);
}

/* Rows are nobody's then, and the next batch's are as if nothing had been. */
static void test_what_one_device_refuses_all_abandon(void **state)
{
	struct meet_world m;
	uint64_t id, first, done = 0;
	uint32_t n_written = 0;
	void *o;

	(void)state;
	world_open(&m, WORK_TOKENS, __func__);
	o = world_alloc(&m.w, WORLD_ROWS * world_row_values(&m.w) * sizeof(float));
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &first), 0);
	for (uint32_t i = 0; i < DEVICES; i++)
		n_written += meeting.ends[i].n_rows_written;
	meeting.one_stale = true;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), -ESTALE);
	for (uint32_t i = 0; i < DEVICES; i++) {
		assert_int_equal(meeting.ends[i].abandoned, 1);
		n_written -= meeting.ends[i].n_rows_written;
	}
	assert_int_equal(n_written, 0);
	meeting.one_stale = false;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), 0);
	assert_int_equal(id, first + 2);
	assert_int_equal(m.w.ops->completed(m.w.backend, &done), 0);
	assert_int_equal(done, id);
	assert_null(m.w.ops->fault(m.w.backend));
	world_done(&m.w);
}

/* ---- faults --------------------------------------------------------------------------------- */

/* NULL: the group lives. */
static const char *await_fault(struct meet_world *m)
{
	uint64_t done;
	int r = 0;

	for (uint32_t i = 0; i < 400 && r == 0; i++) {
		struct timespec ten_ms = {.tv_nsec = 10000000};

		r = m->w.ops->completed(m->w.backend, &done);
		nanosleep(&ten_ms, NULL);
	}
	return r == -EIO ? m->w.ops->fault(m->w.backend) : NULL;
}

static void assert_dead(struct meet_world *m, const char *why)
{
	const char *fault = await_fault(m);
	uint64_t id;

	assert_non_null(fault);
	assert_non_null(strstr(fault, why));
	assert_int_equal(submit_one(m, 0, &id), -EIO);
}

/* A batch while a device does this wrong, which ends the group. */
static void check_ends(bool *wrong, const char *name, const char *why)
{
	struct meet_world m;
	uint64_t id;
	void *o;

	world_open(&m, WORK_TOKENS, name);
	o = world_alloc(&m.w, WORLD_ROWS * world_row_values(&m.w) * sizeof(float));
	*wrong = true;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), 0);
	assert_dead(&m, why);
	world_done(&m.w);
}

static void test_a_device_that_is_never_done_ends_the_group_in_time(void **state)
{
	(void)state;
	check_ends(&meeting.silent, __func__, "device 1 of 3: it has not answered for 100 ms");
}

static void test_a_device_that_does_not_conclude_ends_the_group(void **state)
{
	(void)state;
	check_ends(&meeting.refuses, __func__,
		   "device 1 of 3: the exchange did not begin: its link is down");
}

static void test_a_device_that_fails_as_it_takes_its_share_ends_the_group(void **state)
{
	(void)state;
	check_ends(&meeting.one_breaks, __func__, "device 1 of 3: its share was refused");
}

static bool is_named_first(uint32_t slow_ms, const char *name)
{
	struct meet_world m;
	const char *fault;
	bool is_named;
	uint64_t id;
	void *o;

	world_open(&m, WORK_TOKENS, name);
	o = world_alloc(&m.w, WORLD_ROWS * world_row_values(&m.w) * sizeof(float));
	meeting.slow_ms = slow_ms;
	assert_int_equal(submit_one(&m, world_address(&m.w, o), &id), 0);
	fault = await_fault(&m);
	is_named = fault &&
		   strstr(fault, "device 0 of 3: device 1 has not taken its share for 100 ms");
	if (is_named)
		assert_int_equal(submit_one(&m, 0, &id), -EIO);
	world_done(&m.w);
	return is_named;
}

/* Whoever waits for it says so, and begins nothing; neither does it, as it comes at last. */
static void test_a_device_that_does_not_take_its_share_is_not_waited_for_in_the_end(void **state)
{
	(void)state;
	assert_true(is_named_first(TOO_LONG_MS, __func__) ||
		    is_named_first(FAR_TOO_LONG_MS, __func__));
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_int_equal(meeting.ends[i].concluded + 1, meeting.ends[i].submitted);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_answer_as_one),
		cmocka_unit_test(test_rows_are_merged_where_the_arena_is_that_wants_them),
		cmocka_unit_test(test_devices_that_do_not_reach_each_other_have_no_arenas),
		cmocka_unit_test(test_a_batch_is_complete_when_it_is_on_all),
		cmocka_unit_test(test_a_next_token_is_for_the_device_of_its_page),
		cmocka_unit_test(test_a_next_token_is_for_all_who_share_heads),
		cmocka_unit_test(test_a_plan_that_is_full_on_one_device_is_stale),
		cmocka_unit_test(test_what_all_devices_refuse_changes_nothing),
		cmocka_unit_test(test_what_one_device_refuses_all_abandon),
		cmocka_unit_test(test_a_device_that_fails_as_it_takes_its_share_ends_the_group),
		cmocka_unit_test(
			test_a_device_that_does_not_take_its_share_is_not_waited_for_in_the_end),
		cmocka_unit_test(test_a_device_that_is_never_done_ends_the_group_in_time),
		cmocka_unit_test(test_a_device_that_does_not_conclude_ends_the_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
