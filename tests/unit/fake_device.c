/*
 * fake_device.c - see fake_device.h: its kernels, a queue, and the backend. The runtime's part has
 * fake_runtime.c, the driver's fake_vmm.c.
 */
#include "fake_device.h"
#include "fake_layers.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/cuda/program/elements.h"
#include "kernels/cuda/program/few.h"
#include "kernels/cuda/program/lend.h"
#include "kernels/cuda/program/many.h"
#include "kernels/cuda/program/pair.h"
#include "kernels/cuda/program/tall.h"
#include "kernels/cuda/program/program.h"
#include "kernels/cuda/program/some.h"
#include "kernels/rows/rows.h"
#include "kernels/rows/rope.h"
#include "oracle.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FAKE_SLICE 4096u /* of every other model: so that tests have both */

static struct fake {
	struct backend_ops ops;
	struct backend_program_ops program;
	struct programs programs;
	struct pool pool;
	struct batch batch;
	struct ferry ferry;
} fake = {.ferry = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* ---- a queue -------------------------------------------------------------------------------- */

int queue_expect(struct queue *q, int r)
{
	(void)q;
	return r ? -EIO : 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static float get(const void *at, uint32_t type, uint64_t i)
{
	float value;

	oracle_decode(type, &value, (const char *)at + i * work_dtype_bytes(type), 1);
	return value;
}

static uint32_t narrow_type(uint32_t bf16)
{
	return bf16 ? WORK_BF16 : WORK_FP16;
}

static void put(const struct device_rows *out, uint32_t row, uint32_t i, float value)
{
	float *wide = out->wide ? out->wide + (uint64_t)row * out->wide_stride + i : NULL;

	if (wide)
		*wide = out->add ? *wide + value : value;
	if (out->narrow)
		oracle_encode(narrow_type(out->bf16),
			      (char *)out->narrow + 2 * ((uint64_t)row * out->narrow_stride + i),
			      &value, 1);
}

/* ---- kernels --------------------------------------------------------------------------------- */

int device_begin(const struct device_begin *a, struct launch_to to)
{
	const struct rope_angles angles = {a->inv_freq, a->n_turned, a->rope_factor};

	(void)to;
	if (a->n_wanted)
		memcpy(a->wanted_to, a->wanted_from, a->n_wanted * sizeof(*a->wanted_to));
	memcpy(a->places_to, a->places_from, a->n_rows * sizeof(*a->places_to));
	for (uint32_t row = 0; row < a->n_rows; row++) {
		rope_set(&angles, a->positions[row], a->rotations + (size_t)row * a->n_turned);
		for (uint32_t i = 0; a->x && i < a->hidden; i++)
			a->x[(size_t)row * a->x_stride + i] =
				get(a->embed.at, a->embed.type,
				    (uint64_t)a->ids[row] * a->hidden + i) *
				a->embed_factor;
	}
	return 0;
}

static float norm_in(const struct device_norm *a, uint64_t at)
{
	return a->wide ? a->wide[at] : get(a->narrow, narrow_type(a->bf16), at);
}

static void norm_row(const struct device_norm *a, uint32_t row)
{
	const struct program_wanted *wanted = a->wanted ? &a->wanted[row] : NULL;
	uint64_t from = (uint64_t)(wanted ? wanted->row : row) * a->stride;
	float *hidden = NULL, factor = 1;
	double squares = 0;

	if (wanted && wanted->want & PROGRAM_WANT_HIDDEN)
		hidden = (float *)(uintptr_t)(wanted->out + sizeof(struct program_row)) +
			 (wanted->want & PROGRAM_WANT_LOGITS ? a->n_vocab : 0);
	for (uint32_t i = 0; i < a->n; i++)
		squares += pow((double)norm_in(a, from + i), 2);
	if (a->weight.at)
		factor = (float)(1 / sqrt(squares / a->n + (double)a->eps));
	for (uint32_t i = 0; i < a->n; i++) {
		float x = norm_in(a, from + i) * factor *
			  (a->weight.at ? get(a->weight.at, a->weight.type, i) : 1);

		put(&a->out, row, i, x);
		if (hidden)
			hidden[i] = x;
	}
}

int device_norm(const struct device_norm *a, struct launch_to to)
{
	(void)to;
	assert_true(!a->weight.at || a->weight.n == a->n);
	assert_true(!a->begin_ns || a->wanted);
	if (a->begin_ns)
		*a->begin_ns = clock_now_ns();
	for (uint32_t row = 0; row < a->n_rows; row++)
		norm_row(a, row);
	return 0;
}

static float made_at(const struct device_finishing *a, uint32_t row, uint32_t i)
{
	float value = a->made[(uint64_t)row * a->stride + i];

	for (uint32_t w = 0; w < 3; w++) {
		if (i < a->n_out[w])
			return a->bias[w].at ? value + get(a->bias[w].at, a->bias[w].type, i)
					     : value;
		i -= a->n_out[w];
	}
	fail();
	return 0;
}

int device_finishing(const struct device_finishing *a, struct launch_to to)
{
	const struct rows_ops *rows = rows_ops_select("generic");

	(void)to;
	for (uint32_t row = 0; row < a->n_rows; row++)
		for (uint32_t i = 0; i < a->n; i++) {
			float value = made_at(a, row, i), up;

			if (a->gated) {
				up = made_at(a, row, a->n + i);
				rows->gate((enum rows_act)a->act, &value, &up, 1);
			}
			put(&a->out, row, i, value);
		}
	return 0;
}

/* Norms of one head, or of all that go together. */
static void norm_heads(float *x, uint32_t n, const struct device_vector *weight, float eps)
{
	double squares = 0;

	assert_int_equal(weight->n, n);
	for (uint32_t i = 0; i < n; i++)
		squares += pow((double)x[i], 2);
	for (uint32_t i = 0; i < n; i++)
		x[i] = (float)((double)x[i] / sqrt(squares / n + (double)eps)) *
		       get(weight->at, weight->type, i);
}

/* A head's K or V into its place, chunk by chunk. */
static void put_kv(const struct device_heads *a, uint32_t row, uint32_t head, bool of_v,
		   const float *x)
{
	const struct device_place *place = &a->places[row];
	char *to = a->pool + head * a->head_bytes + (uint64_t)place->source * KV_SOURCE_BYTES +
		   (of_v ? kv_part_bytes(a->dim) : 0);

	for (uint32_t i = 0; i < a->dim / KV_CHUNK_VALUES; i++)
		oracle_encode(narrow_type(a->bf16), to + kv_chunk_offset(a->dim, place->row, i),
			      x + i * KV_CHUNK_VALUES, KV_CHUNK_VALUES);
}

int device_heads(const struct device_heads *a, struct launch_to to)
{
	uint32_t q = a->n_q * a->dim, kv = a->n_kv * a->dim, n = q + 2 * kv;
	float *x = malloc(n * sizeof(*x));

	(void)to;
	assert_non_null(x);
	for (uint32_t row = 0; row < a->n_rows; row++) {
		memcpy(x, a->qkv + (uint64_t)row * a->stride, n * sizeof(*x));
		for (uint32_t at = 0; a->q_norm.at && at < q + kv;) {
			const struct device_vector *weight = at < q ? &a->q_norm : &a->k_norm;
			uint32_t width = !a->wide ? a->dim : at < q ? q : kv;

			norm_heads(x + at, width, weight, a->eps);
			at += width;
		}
		if (a->rotations)
			rope_turn_heads(x, a->n_q + a->n_kv, a->dim,
					a->rotations + (uint64_t)row * a->n_turned, a->n_turned);
		oracle_encode(narrow_type(a->bf16), a->q + (uint64_t)row * q * 2, x, q);
		for (uint32_t head = 0; head < 2 * a->n_kv; head++)
			put_kv(a, row, head % a->n_kv, head >= a->n_kv, x + q + head * a->dim);
	}
	free(x);
	return 0;
}

/* One row's. */
static void tell(const struct device_results *a, uint32_t row)
{
	const struct rows_ops *rows = rows_ops_select("generic");
	const struct program_wanted *wanted = &a->wanted[row];
	struct program_row told = {.lse = NAN, .score = NAN};
	struct rows_score top[PROGRAM_TOP_MAX];
	float *logits = malloc(a->n_vocab * sizeof(*logits));
	bool wants = wanted->want & ~(uint32_t)PROGRAM_WANT_HIDDEN;

	assert_non_null(logits);
	assert_true(a->n_chunks || !wants);
	for (uint32_t i = 0; wants && i < a->n_vocab; i++)
		logits[i] = a->logits[row * a->stride + i] * a->factor;
	if (wants)
		told.lse = (float)rows->log_sum(logits, a->n_vocab);
	if (wanted->want & PROGRAM_WANT_SCORE && wanted->next != PROGRAM_NONE)
		told.score = logits[wanted->next] - told.lse;
	if (wanted->want & PROGRAM_WANT_TOP)
		told.n_top = rows->likeliest(top, wanted->n_top, logits, a->n_vocab);
	for (uint32_t i = 0; i < told.n_top; i++)
		told.top[i] = (struct program_top){top[i].id, top[i].logit};
	memcpy((void *)(uintptr_t)wanted->out, &told, sizeof(told));
	if (wanted->want & PROGRAM_WANT_LOGITS)
		memcpy((char *)(uintptr_t)wanted->out + sizeof(told), logits,
		       a->n_vocab * sizeof(*logits));
	free(logits);
}

int device_results(const struct device_results *a, struct launch_to to)
{
	(void)to;
	for (uint32_t row = 0; row < a->n_rows; row++)
		tell(a, row);
	return 0;
}

/* ---- products of few rows ------------------------------------------------------------------ */

#define FAKE_FEW_ROWS 8u /* so that tests have both */

int device_few_init(void)
{
	return 0;
}

bool device_few_takes(const struct device_few *few)
{
	return few->n_rows <= (few->norm.at ? FAKE_FEW_ROWS / 2 : FAKE_FEW_ROWS);
}

/* Of the wide rows; freed by the caller. */
static char *make_normed(const struct device_few *a)
{
	char *made = malloc((size_t)a->n_rows * a->in_stride * 2);
	struct device_norm norm = {
		.wide = a->wide,
		.weight = a->norm,
		.out = {.narrow = made, .narrow_stride = a->in_stride, .bf16 = a->out.bf16},
		.stride = a->wide_stride,
		.n = a->n_in,
		.n_rows = a->n_rows,
		.eps = a->eps,
	};

	assert_non_null(made);
	assert_int_equal(device_norm(&norm, (struct launch_to){0}), 0);
	return made;
}

static void multiply_one(const struct device_few *a, uint32_t i, float *made, uint32_t stride)
{
	char *normed = a->norm.at ? make_normed(a) : NULL;
	const struct lt_product product = {
		.w = a->w[i],
		.n_w = 1,
		.in = normed ? normed : a->in,
		.out = made,
		.n_out = a->n_out[i],
		.n_in = a->n_in,
		.n_rows = a->n_rows,
		.in_stride = a->in_stride,
		.out_stride = stride,
		.type = narrow_type(a->out.bf16),
		.out_type = WORK_FP32,
	};

	assert_true(a->w_stride == a->n_in && a->w[i]);
	assert_int_equal(lt_multiply(NULL, &product, made, NULL), 0);
	free(normed);
}

int device_few(const struct device_few *a, uint32_t n_blocks, struct launch_to to)
{
	uint32_t n = a->n_out[0] + a->n_out[1] + a->n_out[2], at = 0;
	struct device_finishing finishing = {
		.out = a->out,
		.stride = n,
		.n = a->gated ? n / 2 : n,
		.n_rows = a->n_rows,
		.gated = a->gated,
		.act = a->act,
	};
	float *made = malloc((size_t)a->n_rows * n * sizeof(*made));
	int r;

	(void)n_blocks;
	assert_non_null(made);
	for (uint32_t i = 0; i < 3; i++) {
		finishing.n_out[i] = a->n_out[i];
		finishing.bias[i] = a->bias[i];
		if (a->n_out[i])
			multiply_one(a, i, made + at, n);
		at += a->n_out[i];
	}
	finishing.made = made;
	r = device_finishing(&finishing, to);
	free(made);
	return r;
}

#define FAKE_SOME_ROWS 24u

int device_some_init(void)
{
	return 0;
}

bool device_some_takes(const struct device_few *few)
{
	uint32_t few_rows = few->gated ? FAKE_FEW_ROWS / 4 : FAKE_FEW_ROWS;

	return few->n_rows > few_rows && few->n_rows <= FAKE_SOME_ROWS && !few->norm.at;
}

int device_some(const struct device_few *few, const struct device_some_room *room,
		uint32_t n_blocks, struct launch_to to)
{
	uint32_t n_out = few->n_out[0] + few->n_out[1] + few->n_out[2];

	/* Sums of one part, where nothing else may stand meanwhile. */
	memset(room->parts, 0xff,
	       min_u64((uint64_t)few->n_rows * n_out * sizeof(float), SOME_PARTS_BYTES));
	for (uint32_t i = 0; i < SOME_COUNTERS; i++)
		assert_int_equal(room->counters[i], 0);
	return device_few(few, n_blocks, to);
}

int device_pair_init(void)
{
	return 0;
}

bool device_pair_takes(const struct device_few *few)
{
	return !few->gated && few->n_rows > FAKE_SOME_ROWS && few->n_rows <= 2 * FAKE_SOME_ROWS &&
	       !few->norm.at;
}

int device_pair(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	return device_few(few, n_blocks, to);
}

int device_tall_init(void)
{
	return 0;
}

bool device_tall_takes(const struct device_few *few)
{
	return few->gated && few->n_rows > 2 * FAKE_SOME_ROWS &&
	       few->n_rows <= 3 * FAKE_SOME_ROWS && !few->norm.at;
}

int device_tall(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	return device_few(few, n_blocks, to);
}

#define FAKE_MANY_ROWS 40u

int device_many_init(void)
{
	return 0;
}

bool device_many_takes(const struct device_few *few)
{
	return few->gated && few->n_rows >= FAKE_MANY_ROWS && !few->norm.at;
}

int device_many(const struct device_few *few, uint32_t n_blocks, struct launch_to to)
{
	return device_few(few, n_blocks, to);
}

/* ---- the backend ----------------------------------------------------------------------------- */

static int fake_weights_new(struct backend *b, uint64_t bytes, struct backend_weights **ret)
{
	(void)b;
	return weights_new(&fake.ferry, bytes, ret);
}

static int fake_weights_put(struct backend *b, struct backend_weights *weights, uint64_t offset,
			    const void *from, uint64_t bytes)
{
	(void)b;
	return weights_put(weights, offset, from, bytes);
}

static int fake_weights_lend(struct backend *b, struct backend_weights *weights,
			     struct backend_lent *ret)
{
	(void)b;
	return lend_weights(weights, ret);
}

static void fake_weights_free(struct backend *b, struct backend_weights *weights)
{
	(void)b;
	weights_free(weights);
}

static int fake_new(struct backend *b, const struct program *p, struct backend_weights *weights,
		    struct backend_program **ret, char why[PROGRAM_WHY_BYTES])
{
	fake_layers_on(b);
	fake.pool = (struct pool){.extent_bytes = 2 << 20};
	fake.batch = (struct batch){.pool = &fake.pool, .costs = costs_find(CODE_WGMMA)};
	fake.programs.batch = &fake.batch;
	fake.programs.slice_elements = p->n_vocab % 2 ? FAKE_SLICE : 0;
	return program_new(&fake.programs, p, weights, ret, why);
}

static uint64_t fake_bytes(struct backend *b, const struct program *p)
{
	(void)b;
	return program_new_bytes(p);
}

static bool fake_prepare(struct backend *b, struct backend_program *program)
{
	(void)b;
	return program_prepare(&fake.batch, program);
}

static void fake_free(struct backend *b, struct backend_program *program)
{
	(void)b;
	program_free(program);
}

static int fake_run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	(void)b;
	return program_run(&fake.batch, run, ret);
}

static void fake_cost(struct backend *b, const struct backend_program *program,
		      struct backend_program_cost *ret)
{
	(void)b;
	program_cost(&fake.batch, program, ret);
}

const struct backend_ops *fake_device_ops(void)
{
	fake.program = (struct backend_program_ops){.max_rows = PROGRAM_MAX_ROWS,
						    .rows_as = program_rows_as,
						    .weights_grain = WEIGHTS_GRAIN,
						    .weights_new = fake_weights_new,
						    .weights_put = fake_weights_put,
						    .weights_lend = fake_weights_lend,
						    .weights_free = fake_weights_free,
						    .program_new = fake_new,
						    .program_bytes = fake_bytes,
						    .program_prepare = fake_prepare,
						    .program_free = fake_free,
						    .run = fake_run,
						    .cost = fake_cost};
	fake.ops = backend_cpu;
	fake.ops.program = &fake.program;
	return &fake.ops;
}
