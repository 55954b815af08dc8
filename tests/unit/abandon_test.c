/*
 * abandon_test.c - a batch that another device of the group, or this one, has refused: it counts,
 * tells nobody, and is over at once. The device is fake_stream.h's.
 */
#include "fake_stream.h"
#include "kernels/cuda/batch/batch.h"
#include "kernels/plan/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u

static struct pool pool = {.bytes = 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 16};
static const struct work_shape shape = {1, 8, 8, 128, PAGE_TOKENS, WORK_BF16, 0.0883883f, 0, 0};

/* A device that has met others, and a sequence of a page. */
struct member {
	struct batch batch;
	struct work_slice slice, slot;
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	struct work_list list; /* owned */
	uint64_t told;
};

static int setup(void **state)
{
	struct member *m = calloc(1, sizeof(*m));
	struct plan_config config;

	assert_non_null(m);
	fake_reset();
	assert_int_equal(batch_init(&m->batch, &pool, CODE_WGMMA, 132), 0);
	m->batch.peer = (struct peer *)m; /* which fake_stream.c looks not into */
	m->slice = (struct work_slice){0, 0, PAGE_TOKENS};
	m->slot = (struct work_slice){0, PAGE_TOKENS - 1, 1};
	m->node = (struct work_node){WORK_NONE, 0, PAGE_TOKENS, 0, 1};
	m->query = (struct work_query){.node = 0, .pos = PAGE_TOKENS - 1, .n_rows = 1};
	m->tree = (struct work_tree){&m->node, &m->slice, &m->query, 1, 1, 1};
	plan_config_init(&config, PLAN_AUTO, &shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &m->tree, &m->list), 0);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct member *m = *state;

	batch_done(&m->batch);
	plan_list_done(&m->list);
	free(m);
	return fake_done();
}

/* advanced: under a plan that is not there any more. */
static int submit(struct member *m, bool advanced, uint64_t *ret_id)
{
	struct backend_io io = {.q = 1 << 20,
				.k = 4 << 20,
				.v = 2 << 20,
				.o = 3 << 20,
				.slots = &m->slot,
				.n_slots = 1};
	struct backend_job job = {.shape = &shape,
				  .tree = &m->tree,
				  .list = &m->list,
				  .io = &io,
				  .plan_id = advanced ? 77 : 1,
				  .advanced = advanced};
	struct backend_tell tell = {(uintptr_t)&m->told, 1};
	struct backend_batch one = {&job, 1, &tell, 1};

	return batch_submit(&m->batch, &one, ret_id);
}

static uint64_t look(struct member *m)
{
	uint64_t done = 0;

	fake_runs();
	assert_int_equal(batch_completed(&m->batch, &done), 0);
	return done;
}

static void test_one_that_this_device_refused_counts(void **state)
{
	struct member *m = *state;
	uint64_t id;

	assert_int_equal(submit(m, true, &id), -ESTALE);
	assert_int_equal(look(m), 0);
	assert_int_equal(batch_abandon(&m->batch, true), 0);
	assert_int_equal(fake.first, fake.end);
	assert_int_equal(look(m), 1);
	assert_int_equal(submit(m, false, &id), 0);
	assert_int_equal(id, 2);
	assert_int_equal(m->told, 0);
}

static void test_one_that_was_begun_ends_and_tells_nobody(void **state)
{
	struct member *m = *state;
	uint64_t id;

	assert_int_equal(submit(m, false, &id), 0);
	assert_int_equal(look(m), 0);
	assert_int_equal(batch_abandon(&m->batch, false), 0);
	assert_int_equal(fake.first, fake.end);
	assert_int_equal(look(m), id);
	assert_int_equal(m->told, 0);
}

static void test_the_next_one_tells_as_ever(void **state)
{
	struct member *m = *state;
	uint64_t id;

	assert_int_equal(submit(m, false, &id), 0);
	assert_int_equal(batch_abandon(&m->batch, false), 0);
	m->batch.peer = NULL;
	assert_int_equal(submit(m, false, &id), 0);
	assert_int_equal(look(m), id);
	assert_int_equal(id, 2);
	assert_int_equal(m->told, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_that_this_device_refused_counts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_one_that_was_begun_ends_and_tells_nobody,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_next_one_tells_as_ever, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
