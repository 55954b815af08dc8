/*
 * layers_test.c - passes of two programs under way on one device (batch_layers.h): their segments
 * come by turns, and each finds its own plan and tables. The device is fake_stream.h's.
 */
#include "fake_stream.h"
#include "kernels/cuda/batch/batch_layers.h"
#include "kernels/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE_TOKENS 32u
#define PAGES 8u
#define ROWS 4u
#define SEGMENTS 6u /* of each; all are under way at a time, as far as there are frames */

static struct pool pool = {.bytes = 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 16};

/* A prompt's last rows. */
struct pass {
	struct work_shape shape;
	struct work_slice slices[PAGES], slot;
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	struct work_list list; /* owned */
	struct backend_io io;
	struct backend_job job;
	const void *work_tiles; /* where its plan is; NULL: it has none yet */
};

/* Pages from 8 * i on. */
static void pass_init(struct pass *p, uint32_t i, uint32_t head_dim)
{
	struct plan_config config;

	*p = (struct pass){.shape = {2, 8, 8, head_dim, PAGE_TOKENS, WORK_BF16, 0.1f, 0, 0}};
	for (uint32_t s = 0; s < PAGES; s++)
		p->slices[s] = (struct work_slice){PAGES * i + s, 0, PAGE_TOKENS};
	p->slot = (struct work_slice){PAGES * i + PAGES - 1, PAGE_TOKENS - ROWS, ROWS};
	p->node = (struct work_node){WORK_NONE, 0, PAGES * PAGE_TOKENS, 0, PAGES};
	p->query = (struct work_query){.pos = PAGES * PAGE_TOKENS - ROWS, .n_rows = ROWS};
	p->tree = (struct work_tree){&p->node, p->slices, &p->query, 1, PAGES, 1};
	p->io = (struct backend_io){.q = (i + 1) * MIB,
				    .o = (i + 3) * MIB,
				    .slots = &p->slot,
				    .n_slots = 1};
	plan_config_init(&config, PLAN_AUTO, &p->shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, &p->tree, &p->list), 0);
	p->job = (struct backend_job){.shape = &p->shape,
				      .tree = &p->tree,
				      .list = &p->list,
				      .io = &p->io,
				      .plan_id = 11 + i};
}

/* The last attention that was launched, whose rows come with it; none has been done yet. */
static void check_launched(struct pass *p, uint32_t since)
{
	const struct fake_graph *in = NULL, *attend = NULL;

	for (uint32_t i = since; i < fake.end; i++) {
		const struct fake_graph *g = &fake.graphs[i % FAKE_GRAPHS];

		in = g->in.n_rows ? g : in;
		attend = g->attends ? g : attend;
	}
	assert_true(in && attend);
	assert_int_equal(in->in.rows_from[0].q, p->io.q);
	assert_ptr_equal(attend->attend.rows, in->in.rows_to);
	assert_int_equal(attend->attend.shape.head_dim, p->shape.head_dim);
	if (p->work_tiles)
		assert_ptr_equal(attend->attend.work_tiles, p->work_tiles);
	p->work_tiles = attend->attend.work_tiles;
}

static uint64_t run_segment(struct batch *b, struct pass *p, bool attends, bool ended)
{
	uint32_t since = fake.end;
	struct batch_layers layers;
	uint64_t id;

	assert_int_equal(batch_layers_begin(b, &p->job, 0, &layers), 0);
	if (attends)
		assert_int_equal(batch_layers_attend(&layers, 1), 0);
	assert_int_equal(batch_layers_end(&layers, ended, &id), 0);
	if (attends)
		check_launched(p, since);
	return id;
}

static void await(struct batch *b, uint64_t id)
{
	uint64_t done;

	fake_runs();
	assert_int_equal(batch_completed(b, &done), 0);
	assert_int_equal(done, id);
}

static void run_by_turns(struct pass *a, struct pass *b)
{
	struct batch batch;
	uint64_t id;

	fake_reset();
	assert_int_equal(batch_init(&batch, &pool, CODE_WGMMA, 132), 0);
	for (uint32_t i = 0; i < SEGMENTS; i++) {
		run_segment(&batch, a, i != 2, false);
		id = run_segment(&batch, b, i % 2 == 0, false);
		if (i % 3 == 2)
			await(&batch, id);
	}
	assert_ptr_not_equal(a->work_tiles, b->work_tiles);
	await(&batch, run_segment(&batch, b, false, true));
	assert_null(plan_find(&batch, b->job.plan_id, &b->shape));
	assert_non_null(plan_find(&batch, a->job.plan_id, &a->shape));
	await(&batch, run_segment(&batch, a, true, false));
	await(&batch, run_segment(&batch, a, false, true));
	assert_null(plan_find(&batch, a->job.plan_id, &a->shape));
	batch_done(&batch);
	(void)fake_done();
}

static void check_turns(uint32_t head_dim, uint64_t plan_id)
{
	struct pass a, b;

	pass_init(&a, 0, 128);
	pass_init(&b, 1, head_dim);
	b.job.plan_id = plan_id;
	run_by_turns(&a, &b);
	plan_list_done(&a.list);
	plan_list_done(&b.list);
}

static void test_passes_in_turns_have_each_their_plan_and_tables(void **state)
{
	(void)state;
	check_turns(128, 12);
	check_turns(64, 12);
	check_turns(64, 11); /* a plan is of a shape, too */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_passes_in_turns_have_each_their_plan_and_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
