/* estimate_pages.c - see estimate_pages.h. A unit of work is a KV head. */
#include "estimate_pages.h"

#include "estimate.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#define DIM_MAX 256u

struct run {
	const struct pool_pages *pages;
	const struct vec *vec;
	const struct backend_estimate *e;
	struct estimate_shape shape; /* of one KV head */
	size_t n_mass; /* of one KV head */
	float *mass;
	_Atomic int error;
};

/* What one KV head is estimated from. */
struct head {
	float *q, *k; /* owned */
	double *mass; /* owned */
};

static int head_init(struct head *h, const struct run *run)
{
	size_t dim = run->shape.head_dim;

	h->q = malloc((size_t)run->e->n_q * run->shape.n_q_heads * dim * sizeof(*h->q));
	h->k = malloc((size_t)run->e->n_k * dim * sizeof(*h->k));
	h->mass = malloc(run->n_mass * sizeof(*h->mass));
	return h->q && h->k && h->mass ? 0 : -ENOMEM;
}

static void head_done(struct head *h)
{
	free(h->q);
	free(h->k);
	free(h->mass);
}

static void take_queries(const struct run *run, uint32_t head, float *ret)
{
	const struct work_shape *s = run->e->shape;
	uint32_t n = run->shape.n_q_heads * s->head_dim;
	uint64_t at = run->e->q + (uint64_t)head * n * work_dtype_bytes(s->dtype);

	for (uint32_t i = 0; i < run->e->n_q; i++, at += run->e->q_stride)
		run->vec->widen[s->dtype](ret + (size_t)i * n, (const void *)(uintptr_t)at, n, 1);
}

/* One key: its dimensions lie a line apart. */
static void take_key(const struct run *run, const char *block, uint32_t row, float *ret)
{
	const struct work_shape *s = run->e->shape;
	size_t bytes = work_dtype_bytes(s->dtype), line = s->page_tokens * bytes;
	_Alignas(64) char key[DIM_MAX * 4];
	const char *from = block + run->pages->key_place[row] * bytes;

	for (uint32_t d = 0; d < s->head_dim; d++)
		__builtin_memcpy(key + d * bytes, from + d * line, bytes);
	run->vec->widen[s->dtype](ret, key, s->head_dim, 1);
}

static void take_keys(const struct run *run, uint32_t head, float *ret)
{
	const struct backend_estimate *e = run->e;

	for (uint32_t i = 0; i < e->n_slices; i++) {
		const struct work_slice *slice = &e->slices[i];
		const char *block = pool_block(run->pages, slice->page, e->layer, head);
		for (uint32_t j = 0; j < slice->count; j++, ret += e->shape->head_dim)
			take_key(run, block, slice->first + j, ret);
	}
}

static int run_head(struct run *run, uint32_t head, struct head *h)
{
	struct estimate_input input = {.q = h->q,
				       .k = h->k,
				       .n_q = run->e->n_q,
				       .q_pos = run->e->q_pos,
				       .n_k = run->e->n_k};
	int r;

	take_queries(run, head, h->q);
	take_keys(run, head, h->k);
	r = estimate_blocks(&run->shape, &input, h->mass);
	for (size_t i = 0; i < run->n_mass && !r; i++)
		run->mass[head * run->n_mass + i] = (float)h->mass[i];
	return r;
}

static void unit_run(void *arg, uint32_t thread, uint32_t head)
{
	struct run *run = arg;
	struct head h = {0};
	int r = head_init(&h, run);

	(void)thread;
	if (!r)
		r = run_head(run, head, &h);
	if (r)
		atomic_store(&run->error, r);
	head_done(&h);
}

static bool slices_fit(const struct pool_pages *pages, const struct backend_estimate *e)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < e->n_slices; i++) {
		if (e->slices[i].page >= pages->n_pages ||
		    e->slices[i].first + e->slices[i].count > e->shape->page_tokens)
			return false;
		n += e->slices[i].count;
	}
	return n == e->n_k;
}

int estimate_pages(const struct pool_pages *pages, const struct vec *vec, struct threads *threads,
		   const struct backend_estimate *estimate, float *ret_mass)
{
	const struct work_shape *s = estimate->shape;
	struct run run = {.pages = pages, .vec = vec, .e = estimate, .mass = ret_mass};

	if ((estimate->stride != 8 && estimate->stride != 16) || estimate->block_tokens == 0 ||
	    estimate->block_tokens % estimate->stride != 0 || estimate->n_q == 0 ||
	    estimate->q_pos % estimate->stride != 0 || !slices_fit(pages, estimate))
		return -EINVAL;
	run.shape = (struct estimate_shape){.n_q_heads = s->n_q_heads / s->n_kv_heads,
					    .n_kv_heads = 1,
					    .head_dim = s->head_dim,
					    .stride = estimate->stride,
					    .block_tokens = estimate->block_tokens,
					    .scale = (double)s->scale};
	run.n_mass = (size_t)estimate_n_blocks(estimate->n_q, estimate->block_tokens) *
		     estimate_n_blocks(estimate->n_k, estimate->block_tokens);
	threads_run(threads, unit_run, &run, s->n_kv_heads, false);
	return run.error;
}
