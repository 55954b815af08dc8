/*
 * sched_sparse_long.c - runs the same prefill with a pool that holds it and one that does not,
 * exactly and by choice, and compares what came out and what was staged.
 */
#include "sched_sparse_long.h"

#include "oracle.h"
#include "sched_harness.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LONG 1600u
#define STEP 100u
#define LONG_VALUES (STEP * 4 * 128) /* of Q and O of a step at most */
#define SMALL_POOL (UINT64_C(4) << 20)
#define STAGE (UINT64_C(2) << 20)

double sparse_distance(const float *a, const float *b, size_t n)
{
	double d = 0, sum = 0;

	for (size_t i = 0; i < n; i++) {
		d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		sum += (double)b[i] * b[i];
	}
	return sqrt(d / sum);
}

/* Pages of 64 KiB: the pool has room for 1,024 tokens beside the stage. */
static struct work_shape shape = {.n_layers = 2,
				  .n_q_heads = 4,
				  .n_kv_heads = 2,
				  .head_dim = 64,
				  .page_tokens = 32,
				  .dtype = WORK_FP32,
				  .scale = 0.125f};
static const struct backend_ops *ops;

struct long_run {
	struct abi_completion done; /* of the last step */
	uint64_t staged_bytes;
	float o[LONG_VALUES]; /* of that */
};

/* The same numbers for the same token. */
static float long_value(uint32_t token, uint32_t tensor, uint32_t i)
{
	struct oracle_random random = {
		((uint64_t)token << 20 ^ tensor << 10 ^ i) * UINT64_C(0x9e3779b97f4a7c15) + 1};
	float lean = tensor == 0 ? 0.5f : tensor == 1 && token / 64 % 4 == 1 ? 1 : 0;

	oracle_normal(&random);
	return oracle_normal(&random) + lean;
}

static uint32_t long_q_values(void)
{
	return shape.n_q_heads * shape.head_dim;
}

static void long_fill(struct client *c, const struct abi_step_seq *rec, uint32_t pos)
{
	const uint32_t n_kv = shape.n_kv_heads * shape.head_dim;
	const uint32_t n_values[] = {long_q_values(), n_kv, n_kv};
	const uint64_t at[] = {rec->q, rec->k, rec->v};
	float values[LONG_VALUES];

	for (uint32_t tensor = 0; tensor < 3; tensor++) {
		uint32_t n = n_values[tensor];

		for (uint32_t i = 0; i < STEP * n; i++)
			values[i] = long_value(pos + i / n, tensor, i % n);
		oracle_encode(shape.dtype, c->arena + at[tensor], values, (size_t)STEP * n);
	}
}

static void long_start(struct harness *h, struct client *c, uint64_t pool_bytes,
		       uint64_t stage_bytes)
{
	harness_init(h);
	h->ops = ops;
	h->config.pool_bytes = pool_bytes;
	h->config.stage_bytes = stage_bytes;
	h->config.stage_block = 64;
	h->config.host_tier_bytes = 16u << 20;
	harness_start(h);
	client_start(c, h, 1000, &shape, ARENA_BYTES);
}

/* A sequence of tokens that no other has. */
static uint64_t long_open(struct client *c, uint32_t first_id)
{
	struct store_match match;
	uint64_t seq;

	assert_int_equal(client_open(c, &first_id, 1, &seq, &match), 0);
	return seq;
}

static void long_ask(struct client *c, uint64_t seq, const struct abi_sparse *wish)
{
	struct abi_entry entry = {.kind = ABI_SPARSE, .seq = seq};

	assert_int_equal(client_do(c, entry, wish, sizeof(*wish)).status, 0);
}

/* All layers of STEP tokens more of each, whose first ids are these; how the last ended. */
static struct abi_completion long_step(struct client *c, const uint64_t *seqs,
				       const uint32_t *first_ids, uint32_t n, uint32_t pos)
{
	struct abi_completion done = {0};
	struct abi_step_seq recs[2];
	uint32_t ids[STEP];

	assert_true(n <= 2);
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = 0; j < STEP; j++)
			ids[j] = first_ids[i] + pos + j;
		recs[i] = client_step_seq(c, seqs[i], STEP);
		recs[i].q += i * ARENA_BYTES / 2;
		recs[i].k += i * ARENA_BYTES / 2;
		recs[i].v += i * ARENA_BYTES / 2;
		recs[i].o += i * ARENA_BYTES / 2;
		assert_int_equal(client_extend(c, seqs[i], ids, STEP).status, 0);
	}
	for (uint32_t layer = 0; layer < shape.n_layers; layer++) {
		for (uint32_t i = 0; i < n; i++)
			long_fill(c, &recs[i], pos);
		done = client_do(c,
				 (struct abi_entry){.kind = ABI_STEP, .count = n, .layer = layer},
				 recs, n * (uint32_t)sizeof(recs[0]));
		assert_int_equal(done.status, 0);
	}
	return done;
}

/* A prompt of LONG tokens in steps of STEP; back: trimmed by as many after some steps, and gone on
 * from there. */
static void long_prefill(uint64_t pool_bytes, uint64_t stage_bytes, const struct abi_sparse *wish,
			 bool back, struct long_run *ret)
{
	const uint32_t first_id = 0;
	struct abi_entry trim = {.kind = ABI_TRIM};
	struct harness h = {0};
	uint32_t n_steps = 0;
	struct client c;

	long_start(&h, &c, pool_bytes, stage_bytes);
	trim.seq = long_open(&c, first_id);
	if (wish)
		long_ask(&c, trim.seq, wish);
	for (uint32_t pos = 0; pos < LONG; pos += STEP) {
		if (back && n_steps++ == 14) {
			pos -= 2 * STEP;
			trim.arg = pos;
			assert_int_equal(client_do(&c, trim, NULL, 0).status, 0);
		}
		ret->done = long_step(&c, &trim.seq, &first_id, 1, pos);
	}
	oracle_decode(shape.dtype, ret->o, c.arena + client_step_seq(&c, trim.seq, STEP).o,
		      (size_t)STEP * long_q_values());
	ret->staged_bytes = harness_status(&h).staged_bytes;
	assert_int_equal(client_close(&c, trim.seq), 0);
	client_end(&c);
	harness_stop(&h);
}

/* The last step of such a prompt, and of another one that asks only then: of its path nothing is
 * known, and all is seen. */
static struct abi_completion long_last(const struct abi_sparse *wish, uint32_t n)
{
	const uint32_t first_ids[2] = {0, 2 * LONG};
	struct abi_completion done;
	struct harness h = {0};
	uint64_t seqs[2];
	struct client c;

	long_start(&h, &c, SMALL_POOL, STAGE);
	for (uint32_t i = 0; i < n; i++) {
		seqs[i] = long_open(&c, first_ids[i]);
		if (i == 0)
			long_ask(&c, seqs[i], wish);
		for (uint32_t pos = 0; pos < LONG - STEP; pos += STEP)
			long_step(&c, &seqs[i], &first_ids[i], 1, pos);
		if (i == 1)
			long_ask(&c, seqs[i], wish);
	}
	done = long_step(&c, seqs, first_ids, n, LONG - STEP);
	client_end(&c);
	harness_stop(&h);
	return done;
}

/* A GPU knows no fp32: fp16 of twice the head dim, so that pages stay as large. */
static void long_use(const struct backend_ops *backend)
{
	ops = backend;
	if (ops == &backend_cpu)
		return;
	shape.dtype = WORK_FP16;
	shape.head_dim = 128;
	shape.scale = 0.0884f;
}

void long_check_seen(const struct backend_ops *backend)
{
	const struct abi_sparse wish = {0.8, 8, 64, 1, 1};
	struct abi_completion one, both;

	long_use(backend);
	one = long_last(&wish, 1);
	both = long_last(&wish, 2);
	assert_true(one.attended < 0.8f && one.mass < 1);
	assert_true(fabsf(both.attended - (one.attended + 1) / 2) < 1e-3f);
	assert_true(fabsf(both.mass - (one.mass + 1) / 2) < 1e-3f);
}

void long_check(const struct backend_ops *backend)
{
	long_use(backend);

	const struct abi_sparse wish = {0.8, 8, 64, 1, 1}, all = {0.8, 8, 64, 1, 999};
	struct long_run *exact = malloc(5 * sizeof(*exact)), *legs = exact + 1;
	struct long_run *chosen = exact + 2, *every = exact + 3, *back = exact + 4;
	const size_t n = (size_t)STEP * long_q_values();
	const double rounding = ops == &backend_cpu ? 1e-6 : ROUNDING;

	long_prefill(UINT64_C(16) << 20, 0, NULL, false, exact);
	long_prefill(SMALL_POOL, STAGE, NULL, false, legs);
	assert_true(exact->staged_bytes == 0 && legs->staged_bytes > 0);
	assert_true(sparse_distance(legs->o, exact->o, n) < rounding);
	long_prefill(SMALL_POOL, STAGE, &all, false, every);
	assert_true(every->done.attended == 1 && every->done.mass > 0.9999f);
	assert_true(sparse_distance(every->o, exact->o, n) < rounding);
	long_prefill(SMALL_POOL, STAGE, &wish, false, chosen);
	assert_true(chosen->done.attended > 0.05f && chosen->done.attended < 0.8f);
	assert_true(chosen->done.mass >= 0.8f && chosen->done.mass < 1);
	assert_true(chosen->staged_bytes < legs->staged_bytes * 0.9);
	/* A fifth of the weight lacks, and values are as random as keys. */
	assert_true(sparse_distance(chosen->o, exact->o, n) < 0.5);
	long_prefill(SMALL_POOL, STAGE, &wish, true, back);
	assert_true(sparse_distance(back->o, chosen->o, n) < 10 * rounding);
	free(exact);
}
