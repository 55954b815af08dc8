/*
 * stand_cuda_test.c - decode steps, for which launches stand on the device before they are
 * submitted: right whatever comes in between, and however long it takes.
 *
 * argv[1] is the module; argv[2] "few": as many as suit a tool that slows kernels down a
 * hundredfold. Without a device the program says so and exits with 77, which CTest counts as
 * skipped.
 */
#include "device_ops.h"
#include "kernels/cuda/module/module.h"
#include "probe.h"
#include "proto/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DECODE_LANES 3u /* batches under way at once */
#define STAND_NS 250000 /* that a launch stands */
#define PATIENCE_NS 1000000000

/* Decode steps of a token that is in no page before, each with a value of its own. */
struct decode {
	struct probe p;
	struct decode_lane {
		_Float16 *q, *k, *v, *o; /* as the probe's */
		uint64_t *told; /* becomes the number of the step that is done */
		struct work_slice slot;
		struct backend_io io;
		float value;
	} lanes[DECODE_LANES];
	uint64_t plan_id, done, done_ns;
	uint64_t n_told; /* steps */
	uint32_t layer;
	float value;
};

static const struct backend_ops *cuda;
static uint32_t n_steps = 6000;

static void decode_init(struct decode *d, struct oracle_random *random)
{
	*d = (struct decode){.plan_id = 1};
	probe_init(&d->p, cuda, random);
	d->p.piece = (struct work_piece){0, 3, 1, 3, 3, 0, 1};
	for (uint32_t i = 0; i < DECODE_LANES; i++) {
		struct decode_lane *lane = &d->lanes[i];
		struct world *w = &d->p.w;
		char *at = world_alloc(w, 2048 + sizeof(*lane->told));

		memset(at, 0, 2048 + sizeof(*lane->told));
		lane->told = (uint64_t *)(void *)(at + 2048);
		lane->q = (_Float16 *)at;
		lane->o = (_Float16 *)(at + 512);
		lane->k = (_Float16 *)(at + 1024);
		lane->v = (_Float16 *)(at + 1280);
		lane->slot = (struct work_slice){0, 3, 1};
		lane->io = (struct backend_io){.q = world_address(w, lane->q),
					       .k = world_address(w, lane->k),
					       .v = world_address(w, lane->v),
					       .o = world_address(w, lane->o),
					       .slots = &lane->slot,
					       .n_slots = 1};
	}
}

static uint64_t decode_submit(struct decode *d, struct decode_lane *lane)
{
	struct backend_job job = {.shape = &d->p.w.shape,
				  .tree = &d->p.tree,
				  .list = &d->p.list,
				  .io = &lane->io,
				  .plan_id = d->plan_id,
				  .layer = d->layer};
	struct backend_tell tell = {world_address(&d->p.w, lane->told), ++d->n_told};
	struct backend_batch one = {&job, 1, &tell, 1};
	uint64_t id = 0;

	d->value = d->value < 1000 ? d->value + 1 : 0;
	lane->value = d->value;
	for (uint32_t i = 0; i < 128; i++)
		lane->v[i] = (_Float16)(lane->value + (float)i);
	memset(lane->o, 0xff, 512);
	assert_int_equal(cuda->submit(d->p.w.backend, &one, &id), 0);
	d->layer = (d->layer + 1) % d->p.w.shape.n_layers;
	return id;
}

static void decode_await(struct decode *d, uint64_t id)
{
	while (d->done < id)
		assert_int_equal(cuda->completed(d->p.w.backend, &d->done), 0);
	d->done_ns = clock_now_ns();
}

static void assert_decoded(const struct decode_lane *lane)
{
	for (uint32_t i = 0; i < 256; i++)
		assert_true((float)lane->o[i] == lane->value + (float)(i / 128 * 64 + i % 64));
}

/* The word is written beside the end of the batch, whichever is seen first. */
static void assert_told(const struct decode *d, const struct decode_lane *lane)
{
	uint64_t limit_ns = clock_now_ns() + PATIENCE_NS;

	while (__atomic_load_n(lane->told, __ATOMIC_ACQUIRE) != d->n_told)
		assert_true(clock_now_ns() < limit_ns);
}

/* Several layers one behind the other, then waits for all. */
static void decode_some(struct decode *d, uint32_t n)
{
	uint64_t id = 0;

	for (uint32_t i = 0; i < n; i++)
		id = decode_submit(d, &d->lanes[i]);
	decode_await(d, id);
	for (uint32_t i = 0; i < n; i++)
		assert_decoded(&d->lanes[i]);
	assert_told(d, &d->lanes[n - 1]);
	for (uint32_t i = 0; i < n; i++)
		assert_decoded(&d->lanes[i]);
}

static void pause_until(uint64_t ns)
{
	while (clock_now_ns() < ns)
		;
}

/* What nobody could foresee. */
static void decode_surprise(struct decode *d, struct oracle_random *random)
{
	struct backend_move move = {0, 5, 0, 6};

	switch (oracle_below(random, 7)) {
	case 0:
		d->plan_id++;
		break;
	case 1:
		d->layer = (d->layer + 1) % d->p.w.shape.n_layers;
		break;
	case 2:
		probe_put(&d->p, 1, 0, 5, 7);
		break;
	case 3:
		assert_int_equal(cuda->move(d->p.w.backend, &d->p.w.shape, &move, 1), 0);
		break;
	case 4:
		pause_until(d->done_ns + 2 * STAND_NS);
		break;
	default: /* just as it leaves */
		pause_until(d->done_ns + STAND_NS - 2000 + oracle_below(random, 14000));
	}
}

static void test_steps_are_right_foreseen_or_not(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct decode d;

	(void)state;
	decode_init(&d, &random);
	for (uint32_t i = 0; i < n_steps; i++) {
		decode_some(&d, oracle_below(&random, 4) ? 1 : DECODE_LANES);
		if (oracle_below(&random, 16) == 0)
			decode_surprise(&d, &random);
	}
	world_done(&d.p.w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps_are_right_foreseen_or_not),
	};
	int r = device_ops(argc > 1 ? argv[1] : CUDA_MODULE_NAME, &cuda);

	if (argc > 2 && strcmp(argv[2], "few") == 0)
		n_steps = 200;
	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
