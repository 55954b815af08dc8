/*
 * sparse_fixture.c - the sequence's values and pages, jobs and lists over it, and the error of an
 * answer against float64 over the blocks that were kept.
 */
#include "sparse_fixture.h"

#include "kernels/plan/select.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define N_EXTENTS 8u

const struct backend_ops *fixture_ops = &backend_cpu;

bool fixture_on_cpu(void)
{
	return fixture_ops == &backend_cpu;
}

uint32_t fixture_q_values(const struct fixture *f)
{
	return f->shape.n_q_heads * f->shape.head_dim;
}

uint32_t fixture_k_values(const struct fixture *f)
{
	return f->shape.n_kv_heads * f->shape.head_dim;
}

uint64_t fixture_row_bytes(const struct fixture *f, uint32_t values)
{
	return values * work_dtype_bytes(f->shape.dtype);
}

/* Offsets in the arena. */
uint64_t fixture_k_offset(const struct fixture *f)
{
	return f->n * fixture_row_bytes(f, fixture_q_values(f));
}

uint64_t fixture_o_offset(const struct fixture *f, uint32_t which)
{
	return fixture_k_offset(f) + 2 * f->n * fixture_row_bytes(f, fixture_k_values(f)) +
	       which * f->chunk * fixture_row_bytes(f, fixture_q_values(f));
}

static float *make_values(const struct fixture *f, struct oracle_random *random, size_t n,
			  char *raw)
{
	float *values = malloc(n * sizeof(*values));

	for (size_t i = 0; i < n; i++)
		values[i] = 2 * oracle_normal(random);
	oracle_encode(f->shape.dtype, raw, values, n);
	oracle_decode(f->shape.dtype, values, raw, n);
	return values;
}

void fixture_run(struct fixture *f, const struct backend_job *jobs, uint32_t n_jobs)
{
	uint64_t id = 0, done = 0;

	assert_int_equal(fixture_ops->submit(f->backend, &(struct backend_batch){jobs, n_jobs},
					     &id),
			 0);
	while (done < id)
		assert_int_equal(fixture_ops->completed(f->backend, &done), 0);
}

struct backend_job fixture_job(const struct fixture *f, const struct work_list *list,
			       const struct backend_io *io)
{
	return (struct backend_job){
		.shape = &f->shape, .tree = &f->tree, .list = list, .io = io, .layer = 1};
}

struct plan_config fixture_plan(const struct fixture *f)
{
	struct plan_config plan;

	plan_config_init(&plan, PLAN_AUTO, &f->shape, 1);
	plan.tile_rows = fixture_ops->tile_rows(f->backend, &f->shape);
	return plan;
}

static void append_all(struct fixture *f)
{
	uint64_t bytes = fixture_row_bytes(f, fixture_k_values(f));
	struct backend_io io = {.k = f->base + fixture_k_offset(f),
				.v = f->base + fixture_k_offset(f) + f->n * bytes,
				.k_stride = bytes,
				.v_stride = bytes,
				.slots = f->slices,
				.n_slots = f->tree.n_slices};
	struct work_query all = {.node = 0, .pos = 0, .n_rows = f->n};
	struct plan_config plan = fixture_plan(f);
	struct work_list list = {0};
	struct backend_job job = fixture_job(f, &list, &io);

	f->tree.queries = &all;
	assert_int_equal(plan_make(&plan, &f->tree, &list), 0);
	fixture_run(f, &job, 1);
	plan_list_done(&list);
	f->tree.queries = &f->query;
}

static void open_backend(struct fixture *f)
{
	struct backend_config config = {.pool_bytes = N_EXTENTS * 2 * MIB,
					.extent_bytes = 2 * MIB,
					.n_threads = 2};
	char error[200] = "";

	assert_int_equal(fixture_ops->open(&config, &f->backend, error, sizeof(error)), 0);
	for (uint32_t i = 0; i < N_EXTENTS; i++)
		assert_int_equal(fixture_ops->extent_commit(f->backend, i), 0);
	f->arena_bytes = (fixture_o_offset(f, 2) + 4095) / 4096 * 4096;
	f->arena = aligned_alloc(4096, f->arena_bytes);
	assert_int_equal(fixture_ops->arena_attach(f->backend, f->arena, f->arena_bytes, &f->base),
			 0);
}

/* Pages in an order of their own. */
static void make_path(struct fixture *f)
{
	uint32_t n_pages = (f->n + PAGE - 1) / PAGE;

	for (uint32_t i = 0; i < n_pages; i++)
		f->slices[i] = (struct work_slice){.page = n_pages - i,
						   .count = f->n - i * PAGE < PAGE ? f->n - i * PAGE
										   : PAGE};
	f->node = (struct work_node){.parent = WORK_NONE, .n_tokens = f->n, .n_slices = n_pages};
	f->query = (struct work_query){.pos = f->n - f->chunk, .n_rows = f->chunk};
	f->tree = (struct work_tree){.nodes = &f->node,
				     .slices = f->slices,
				     .queries = &f->query,
				     .n_nodes = 1,
				     .n_slices = n_pages,
				     .n_queries = 1};
}

void fixture_make(struct fixture *f, struct oracle_random *random)
{
	uint64_t k_bytes;

	make_path(f);
	open_backend(f);
	k_bytes = f->n * fixture_row_bytes(f, fixture_k_values(f));
	f->q = make_values(f, random, (size_t)f->n * fixture_q_values(f), f->arena);
	f->k = make_values(f, random, (size_t)f->n * fixture_k_values(f),
			   f->arena + fixture_k_offset(f));
	f->v = make_values(f, random, (size_t)f->n * fixture_k_values(f),
			   f->arena + fixture_k_offset(f) + k_bytes);
	append_all(f);
}

void fixture_init(struct fixture *f, enum work_dtype dtype, struct oracle_random *random)
{
	*f = (struct fixture){.n = N,
			      .chunk = CHUNK,
			      .shape = {.n_layers = 2,
					.n_q_heads = 6,
					.n_kv_heads = 3,
					.head_dim = fixture_on_cpu() ? 32 : 64,
					.page_tokens = PAGE,
					.dtype = dtype,
					.scale = 0.15f}};
	fixture_make(f, random);
}

void fixture_done(struct fixture *f)
{
	fixture_ops->arena_detach(f->backend, f->base, f->arena_bytes);
	fixture_ops->close(f->backend);
	free(f->q);
	free(f->k);
	free(f->v);
	free(f->arena);
}

/* Everything that was written by nobody is NaN. */
struct backend_io fixture_output(const struct fixture *f, uint32_t which)
{
	uint64_t bytes = fixture_row_bytes(f, fixture_q_values(f));

	memset(f->arena + fixture_o_offset(f, which), 0xff, f->chunk * bytes);
	return (struct backend_io){.q = f->base + (f->n - f->chunk) * bytes,
				   .o = f->base + fixture_o_offset(f, which),
				   .q_stride = bytes,
				   .o_stride = bytes};
}

static float *output_values(const struct fixture *f, uint32_t which)
{
	size_t n = (size_t)f->chunk * fixture_q_values(f);
	float *o = malloc(n * sizeof(*o));

	oracle_decode(f->shape.dtype, o, f->arena + fixture_o_offset(f, which), n);
	return o;
}

/* In float64, of one row and query head, over the kept blocks; kept NULL: all. */
static void attend_row(const struct fixture *f, uint32_t row, uint32_t q_head, const uint64_t *kept,
		       uint32_t block_tokens, double *ret)
{
	uint32_t dim = f->shape.head_dim, pos = f->n - f->chunk + row;
	uint32_t head = q_head / (f->shape.n_q_heads / f->shape.n_kv_heads);
	const float *q = f->q + (size_t)pos * fixture_q_values(f) + q_head * dim;
	double max = -INFINITY, sum = 0, *scores = malloc((pos + 1) * sizeof(*scores));

	for (uint32_t t = 0; t <= pos; t++) {
		const float *k = f->k + (size_t)t * fixture_k_values(f) + head * dim;
		scores[t] = 0;
		for (uint32_t i = 0; i < dim; i++)
			scores[t] += (double)q[i] * k[i];
		scores[t] = kept && !select_has(kept, t / block_tokens)
				    ? -INFINITY
				    : scores[t] * (double)f->shape.scale;
		max = scores[t] > max ? scores[t] : max;
	}
	memset(ret, 0, dim * sizeof(*ret));
	for (uint32_t t = 0; t <= pos; t++) {
		const float *v = f->v + (size_t)t * fixture_k_values(f) + head * dim;
		double weight = exp(scores[t] - max);
		sum += weight;
		for (uint32_t i = 0; i < dim && weight > 0; i++)
			ret[i] += weight * v[i];
	}
	for (uint32_t i = 0; i < dim; i++)
		ret[i] /= sum;
	free(scores);
}

/* Norm of what is wrong over the norm of what is right. */
double fixture_error(const struct fixture *f, uint32_t which, kept_function kept, const void *of)
{
	uint32_t dim = f->shape.head_dim, group = f->shape.n_q_heads / f->shape.n_kv_heads;
	float *got = output_values(f, which);
	double want[256], wrong = 0, all = 0;

	for (uint32_t row = 0; row < f->chunk; row++)
		for (uint32_t h = 0; h < f->shape.n_q_heads; h++) {
			const float *o = got + (size_t)row * fixture_q_values(f) + h * dim;
			attend_row(f, row, h, kept ? kept(f, of, row, h / group) : NULL, BLOCK,
				   want);
			for (uint32_t i = 0; i < dim; i++) {
				wrong += (o[i] - want[i]) * (o[i] - want[i]);
				all += want[i] * want[i];
			}
		}
	free(got);
	return sqrt(wrong / all);
}
