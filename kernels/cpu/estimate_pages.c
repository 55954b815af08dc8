/* estimate_pages.c - see estimate_pages.h. A unit of work is a KV head; its scores are all there
 * before they are summed. */
#include "estimate_pages.h"

#include "kernels/accesses.h"
#include "proto/arith.h"
#include "summary.h"
#include "kernels/slices.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LOG2_E 1.4426950408889634
#define DIM_MAX 256u
#define TILE WORK_TILE_TOKENS /* squares */

struct run {
	const struct pool_pages *pages;
	const struct vec *vec;
	const struct backend_estimate *e;
	uint32_t dim, depth; /* of a token, of a square */
	uint32_t n_rows, n_columns; /* squares of one query head, of the keys */
	uint32_t m, m_room; /* rows of one KV head, and in whole blocks */
	uint32_t columns_room; /* in whole tiles */
	uint32_t n_q_blocks, n_k_blocks;
	float *mass;
	_Atomic int error;
};

/* What one KV head takes. */
struct head {
	float *q; /* owned, [m_room / VEC_BLOCK][depth][VEC_BLOCK], scaled */
	float *k; /* owned, [depth][TILE] */
	float *scores; /* owned, [m_room][columns_room] */
	double *mass; /* owned, [n_q_blocks][n_k_blocks] */
	uint32_t slice, row; /* the next key's */
};

static void *lines(size_t n, size_t bytes)
{
	return aligned_alloc(64, align_to(n * bytes, 64));
}

static int head_init(struct head *h, const struct run *run)
{
	size_t n_mass = (size_t)run->n_q_blocks * run->n_k_blocks;

	h->q = lines((size_t)run->m_room * run->depth, sizeof(*h->q));
	h->k = lines((size_t)run->depth * TILE, sizeof(*h->k));
	h->scores = lines((size_t)run->m_room * run->columns_room, sizeof(*h->scores));
	h->mass = calloc(n_mass, sizeof(*h->mass));
	return h->q && h->k && h->scores && h->mass ? 0 : -ENOMEM;
}

static void head_done(struct head *h)
{
	free(h->q);
	free(h->k);
	free(h->scores);
	free(h->mass);
}

/* Token i of a square of queries meets token stride - 1 - i of one of keys: they get the same
 * place. */
static void take_query(const struct run *run, uint32_t head, uint32_t row, struct head *h)
{
	const struct work_shape *s = run->e->shape;
	uint32_t group = s->n_q_heads / s->n_kv_heads, stride = run->e->stride;
	uint32_t q_head = head * group + row / run->n_rows, first = row % run->n_rows * stride;
	float scale = (float)((double)s->scale * LOG2_E / stride), token[DIM_MAX] = {0};
	float *to = h->q + (size_t)(row / VEC_BLOCK) * run->depth * VEC_BLOCK + row % VEC_BLOCK;

	for (uint32_t i = 0; i < stride; i++) {
		uint32_t query = first + stride - 1 - i;
		bool there = row < run->m && query < run->e->n_q;
		uint64_t at = run->e->q + query * run->e->q_stride +
			      (uint64_t)q_head * run->dim * work_dtype_bytes(s->dtype);
		if (there)
			run->vec->widen[s->dtype](token, (const void *)(uintptr_t)at, run->dim,
						  scale);
		/* A mean meets the sum of a square's queries. */
		if (run->e->summary && i > 0)
			to -= (size_t)run->dim * VEC_BLOCK;
		for (uint32_t d = 0; d < run->dim; d++, to += VEC_BLOCK)
			*to = (run->e->summary && i > 0 ? *to : 0) + (there ? token[d] : 0);
	}
}

/* The path's next key: its dimensions lie a line apart. */
static void take_key(const struct run *run, uint32_t head, struct head *h, float *ret)
{
	const struct work_shape *s = run->e->shape;
	const struct work_slice *slice = &run->e->slices[h->slice];
	_Alignas(64) char key[DIM_MAX * 4];

	pool_key(run->pages, s, pool_block(run->pages, slice->page, run->e->layer, head),
		 slice->first + h->row, key);
	run->vec->widen[s->dtype](ret, key, run->dim, 1);
	if (++h->row == slice->count) {
		h->row = 0;
		h->slice++;
	}
}

static void take_means(const struct run *run, uint32_t head, uint32_t column, struct head *h)
{
	float mean[DIM_MAX];

	for (uint32_t i = 0; i < TILE; i++) {
		bool there = column + i < run->n_columns;
		if (there)
			run->vec->widen[run->e->shape->dtype](
				mean, summary_at(run->e->summary, column + i, run->e->layer, head),
				run->dim, 1);
		for (uint32_t d = 0; d < run->dim; d++)
			h->k[(size_t)d * TILE + i] = there ? mean[d] : 0;
	}
}

static void take_tile(const struct run *run, uint32_t head, uint32_t column, struct head *h)
{
	uint32_t stride = run->e->stride;
	float key[DIM_MAX];

	if (run->e->summary) {
		take_means(run, head, column, h);
		return;
	}

	for (uint32_t i = 0; i < TILE * stride; i++) {
		float *to = h->k + (size_t)(i % stride) * run->dim * TILE + i / stride;
		bool there = column * stride + i < run->e->n_k;
		if (there)
			take_key(run, head, h, key);
		for (uint32_t d = 0; d < run->dim; d++)
			to[(size_t)d * TILE] = there ? key[d] : 0;
	}
}

static void score_tile(const struct run *run, uint32_t column, struct head *h)
{
	_Alignas(64) float s[VEC_BLOCK * TILE];

	access_own_read(h->k, (size_t)run->depth * TILE * sizeof(*h->k));
	for (uint32_t row = 0; row < run->m_room; row += VEC_BLOCK) {
		struct vec_score score = {.q = h->q + (size_t)row * run->depth,
					  .k = h->k,
					  .s = s,
					  .n_rows = VEC_BLOCK,
					  .n_keys = TILE,
					  .head_dim = run->depth,
					  .page_tokens = TILE};
		run->vec->score[WORK_FP32](&score);
		for (uint32_t i = 0; i < VEC_BLOCK; i++)
			memcpy(h->scores + (size_t)(row + i) * run->columns_room + column,
			       s + i * TILE, TILE * sizeof(*s));
	}
}

/* The largest of n; NaN where one is not finite. */
static float largest(const float *scores, uint32_t n)
{
	float max = -INFINITY;
	bool finite = true;

	for (uint32_t i = 0; i < n; i++) {
		max = scores[i] > max ? scores[i] : max;
		finite = finite && isfinite(scores[i]);
	}
	return finite ? max : NAN;
}

/* Softmax over what the row sees, added to its blocks. What is not finite leaves nothing to choose
 * by: NaN. */
static void sum_row(const struct run *run, uint32_t row, struct head *h)
{
	uint32_t stride = run->e->stride, block = run->e->block_tokens / stride;
	uint32_t n = run->e->q_pos / stride + row % run->n_rows + 1;
	float *scores = h->scores + (size_t)row * run->columns_room, max;
	double *mass = h->mass + (size_t)(row % run->n_rows / block) * run->n_k_blocks, sum = 0;

	n = min_u32(n, run->n_columns);
	max = largest(scores, n);
	for (uint32_t i = 0; i < run->columns_room; i++)
		scores[i] = i < n ? scores[i] - max : -INFINITY;
	if (!isnan(max))
		run->vec->exp2(scores, scores, run->columns_room);
	for (uint32_t i = 0; i < n; i++)
		sum += (double)scores[i];
	for (uint32_t i = 0; i < n; i++)
		mass[i / block] += (double)scores[i] / sum;
}

static void run_head(struct run *run, uint32_t head, struct head *h)
{
	size_t n_mass = (size_t)run->n_q_blocks * run->n_k_blocks;

	for (uint32_t row = 0; row < run->m_room; row++)
		take_query(run, head, row, h);
	for (uint32_t column = 0; column < run->n_columns; column += TILE) {
		take_tile(run, head, column, h);
		score_tile(run, column, h);
	}
	for (uint32_t row = 0; row < run->m; row++)
		sum_row(run, row, h);
	for (size_t i = 0; i < n_mass; i++)
		run->mass[head * n_mass + i] = (float)h->mass[i];
}

static void unit_run(void *arg, uint32_t thread, uint32_t head)
{
	struct run *run = arg;
	struct head h = {0};
	int r = head_init(&h, run);

	(void)thread;
	if (r)
		atomic_store(&run->error, r);
	else
		run_head(run, head, &h);
	head_done(&h);
}

static bool keys_fit(const struct pool_pages *pages, const struct backend_estimate *e)
{
	if (e->summary)
		return e->stride == BACKEND_SUMMARY_TOKENS && e->n_k <= summary_tokens(e->summary);
	return slices_fit_estimate(e, pages->n_pages);
}

static bool fits(const struct pool_pages *pages, const struct backend_estimate *e)
{
	return (e->stride == 8 || e->stride == 16) && e->block_tokens > 0 &&
	       e->block_tokens % e->stride == 0 && e->n_q > 0 && e->q_pos % e->stride == 0 &&
	       (uint64_t)e->q_pos + e->n_q <= e->n_k && keys_fit(pages, e);
}

int estimate_pages(const struct estimator *with, const struct backend_estimate *estimate,
		   const float **ret_mass)
{
	const struct work_shape *s = estimate->shape;
	struct run run = {.pages = with->pages, .vec = with->vec, .e = estimate};

	if (!fits(with->pages, estimate))
		return -EINVAL;
	run.dim = s->head_dim;
	run.depth = s->head_dim * (estimate->summary ? 1 : estimate->stride);
	run.n_rows = ceil_div(estimate->n_q, estimate->stride);
	run.n_columns = ceil_div(estimate->n_k, estimate->stride);
	run.m = s->n_q_heads / s->n_kv_heads * run.n_rows;
	run.m_room = ceil_div(run.m, VEC_BLOCK) * VEC_BLOCK;
	run.columns_room = ceil_div(run.n_columns, TILE) * TILE;
	run.n_q_blocks = ceil_div(estimate->n_q, estimate->block_tokens);
	run.n_k_blocks = ceil_div(estimate->n_k, estimate->block_tokens);
	run.mass = array_room(with->room, (size_t)s->n_kv_heads * run.n_q_blocks * run.n_k_blocks,
			      sizeof(*run.mass));
	if (!run.mass)
		return -ENOMEM;
	threads_run(with->threads, unit_run, &run, s->n_kv_heads, false);
	if (!run.error)
		*ret_mass = run.mass;
	return run.error;
}
