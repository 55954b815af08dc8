/* stand_fixture.c - the sequence, its plan, and its steps, layer by layer. */
#include "stand_fixture.h"

#include "kernels/plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct pool decode_pool = {.bytes = 1024 * MIB, .extent_bytes = 64 * MIB, .n_extents = 16};
const struct work_shape decode_shape = {LAYERS,	   8,	       8, 128, PAGE_TOKENS,
					WORK_BF16, 0.0883883f, 0, 0};

void decode_make_plan(const struct work_tree *tree, struct work_list *list)
{
	struct plan_config config;

	plan_config_init(&config, PLAN_AUTO, &decode_shape, 132);
	config.tile_rows = PLAN_DEVICE_ROWS;
	assert_int_equal(plan_make(&config, tree, list), 0);
}

int decode_setup(void **state)
{
	struct decode *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	fake_reset();
	assert_int_equal(batch_init(&d->batch, &decode_pool, CODE_WGMMA, 132), 0);
	for (uint32_t i = 0; i < 8; i++)
		d->slices[i] = (struct work_slice){i, 0, PAGE_TOKENS};
	d->slot = (struct work_slice){7, PAGE_TOKENS - 1, 1};
	d->node = (struct work_node){WORK_NONE, 0, 8 * PAGE_TOKENS, 0, 8};
	d->query = (struct work_query){.node = 0, .pos = 8 * PAGE_TOKENS - 1, .n_rows = 1};
	d->tree = (struct work_tree){&d->node, d->slices, &d->query, 1, 8, 1};
	decode_make_plan(&d->tree, &d->list);
	d->plan_id = 1;
	*state = d;
	return 0;
}

int decode_teardown(void **state)
{
	struct decode *d = *state;

	batch_done(&d->batch);
	plan_list_done(&d->list);
	free(d);
	return fake_done();
}

uint64_t decode_submit(struct decode *d)
{
	struct backend_io io = {.q = 1 << 20,
				.k = d->k += 4096,
				.v = 2 << 20,
				.o = 3 << 20,
				.slots = &d->slot,
				.n_slots = 1};
	struct backend_job job = {.shape = &decode_shape,
				  .tree = &d->tree,
				  .list = &d->list,
				  .io = &io,
				  .plan_id = d->plan_id,
				  .layer = d->layer};
	struct backend_tell tell = {(uintptr_t)&d->told, d->k};
	struct backend_batch one = {&job, 1, &tell, 1};

	assert_int_equal(batch_submit(&d->batch, &one, &d->last_id), 0);
	d->layer = (d->layer + 1) % LAYERS;
	return d->last_id;
}

void decode_await(struct decode *d, uint64_t id)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < 4 && done < id; i++) {
		fake_runs();
		assert_int_equal(batch_completed(&d->batch, &done), 0);
	}
	assert_true(done >= id);
	fake.now_ns += 20000;
}

void decode_assert_did(const struct decode *d, uint64_t id, uint64_t k, uint32_t layer)
{
	const struct fake_deed *deed = &fake.deeds[id];
	uint64_t layer_bytes = kv_head_bytes(&decode_shape) * decode_shape.n_kv_heads;

	assert_int_equal(deed->n, 1);
	assert_int_equal(deed->k, k);
	assert_ptr_equal(deed->pool, (char *)(uintptr_t)d->batch.pool->base + layer * layer_bytes);
}

void decode_step(struct decode *d)
{
	uint32_t layer = d->layer;
	uint64_t id = decode_submit(d);

	assert_int_not_equal(d->told, d->k);
	decode_await(d, id);
	decode_assert_did(d, id, d->k, layer);
	assert_int_equal(d->told, d->k);
}

void decode_until_one_stands(struct decode *d)
{
	uint32_t n = 0;

	while (!d->batch.stand.stands) {
		decode_step(d);
		assert_true(++n < 40);
	}
}
