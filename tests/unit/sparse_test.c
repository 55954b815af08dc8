/*
 * sparse_test.c - what a backend does for sparse prefill: masses of blocks estimated from its pages, jobs of some KV heads alone, and
 * jobs of chosen blocks; and blocks chosen for a chunk of queries.
 *
 * One sequence, the last tokens of which ask. argv[1]: the module of the backend, else it is the CPU's; without its device the
 * program says so and exits with 77.
 */
#include "oracle.h"

#include "kernels/backend.h"
#include "kernels/cpu/estimate.h"
#include "kernels/cuda/module.h"
#include "kernels/plan/select.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define SKIPPED 77
#define PAGE 32u
#define N 700u
#define CHUNK 300u
#define PAGES_MOST 80u
#define BLOCK 64u
#define N_EXTENTS 8u

static const struct backend_ops *ops = &backend_cpu;

/* As attention_test.c has them: of the norm of O. */
static const double bounds[] = {[WORK_FP32] = 1e-5, [WORK_FP16] = 5e-4, [WORK_BF16] = 4e-3};

struct fixture {
	struct work_shape shape;
	uint32_t n, chunk; /* tokens */
	struct backend *backend; /* owned */
	struct work_slice slices[PAGES_MOST];
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	float *q, *k, *v; /* owned, as the dtype has them, of all tokens */
	char *arena; /* owned: Q, K, V of all tokens, then room for O, twice */
	uint64_t base, arena_bytes; /* as the backend knows it */
};

static bool on_cpu(void)
{
	return ops == &backend_cpu;
}

static uint32_t q_values(const struct fixture *f)
{
	return f->shape.n_q_heads * f->shape.head_dim;
}

static uint32_t k_values(const struct fixture *f)
{
	return f->shape.n_kv_heads * f->shape.head_dim;
}

static uint64_t row_bytes(const struct fixture *f, uint32_t values)
{
	return values * work_dtype_bytes(f->shape.dtype);
}

/* Offsets in the arena. */
static uint64_t k_offset(const struct fixture *f)
{
	return f->n * row_bytes(f, q_values(f));
}

static uint64_t o_offset(const struct fixture *f, uint32_t which)
{
	return k_offset(f) + 2 * f->n * row_bytes(f, k_values(f)) +
	       which * f->chunk * row_bytes(f, q_values(f));
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

static void run(struct fixture *f, const struct backend_job *jobs, uint32_t n_jobs)
{
	uint64_t id = 0, done = 0;

	assert_int_equal(ops->submit(f->backend, &(struct backend_batch){jobs, n_jobs}, &id), 0);
	while (done < id)
		assert_int_equal(ops->completed(f->backend, &done), 0);
}

static struct backend_job job_of(const struct fixture *f, const struct work_list *list,
				 const struct backend_io *io)
{
	return (struct backend_job){
		.shape = &f->shape, .tree = &f->tree, .list = list, .io = io, .layer = 1};
}

static struct plan_config plan_of(const struct fixture *f)
{
	struct plan_config plan;

	plan_config_init(&plan, PLAN_AUTO, &f->shape, 1);
	plan.tile_rows = ops->tile_rows(f->backend, &f->shape);
	return plan;
}

static void append_all(struct fixture *f)
{
	uint64_t bytes = row_bytes(f, k_values(f));
	struct backend_io io = {.k = f->base + k_offset(f),
				.v = f->base + k_offset(f) + f->n * bytes,
				.k_stride = bytes,
				.v_stride = bytes,
				.slots = f->slices,
				.n_slots = f->tree.n_slices};
	struct work_query all = {.node = 0, .pos = 0, .n_rows = f->n};
	struct plan_config plan = plan_of(f);
	struct work_list list = {0};
	struct backend_job job = job_of(f, &list, &io);

	f->tree.queries = &all;
	assert_int_equal(plan_make(&plan, &f->tree, &list), 0);
	run(f, &job, 1);
	plan_list_done(&list);
	f->tree.queries = &f->query;
}

static void open_backend(struct fixture *f)
{
	struct backend_config config = {.pool_bytes = N_EXTENTS * 2 * MIB,
					.extent_bytes = 2 * MIB,
					.n_threads = 2};
	char error[200] = "";

	assert_int_equal(ops->open(&config, &f->backend, error, sizeof(error)), 0);
	for (uint32_t i = 0; i < N_EXTENTS; i++)
		assert_int_equal(ops->extent_commit(f->backend, i), 0);
	f->arena_bytes = (o_offset(f, 2) + 4095) / 4096 * 4096;
	f->arena = aligned_alloc(4096, f->arena_bytes);
	assert_int_equal(ops->arena_attach(f->backend, f->arena, f->arena_bytes, &f->base), 0);
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

static void fixture_make(struct fixture *f, struct oracle_random *random)
{
	uint64_t k_bytes;

	make_path(f);
	open_backend(f);
	k_bytes = f->n * row_bytes(f, k_values(f));
	f->q = make_values(f, random, (size_t)f->n * q_values(f), f->arena);
	f->k = make_values(f, random, (size_t)f->n * k_values(f), f->arena + k_offset(f));
	f->v = make_values(f, random, (size_t)f->n * k_values(f), f->arena + k_offset(f) + k_bytes);
	append_all(f);
}

static void fixture_init(struct fixture *f, enum work_dtype dtype, struct oracle_random *random)
{
	*f = (struct fixture){.n = N,
			      .chunk = CHUNK,
			      .shape = {.n_layers = 2,
					.n_q_heads = 6,
					.n_kv_heads = 3,
					.head_dim = on_cpu() ? 32 : 64,
					.page_tokens = PAGE,
					.dtype = dtype,
					.scale = 0.15f}};
	fixture_make(f, random);
}

static void fixture_done(struct fixture *f)
{
	ops->arena_detach(f->backend, f->base, f->arena_bytes);
	ops->close(f->backend);
	free(f->q);
	free(f->k);
	free(f->v);
	free(f->arena);
}

/* ---- estimates ------------------------------------------------------------------------------------------------ */

static struct backend_estimate estimate_of(const struct fixture *f, uint32_t n_q, uint32_t stride)
{
	uint64_t bytes = row_bytes(f, q_values(f));

	return (struct backend_estimate){.shape = &f->shape,
					 .slices = f->slices,
					 .n_slices = f->tree.n_slices,
					 .layer = 1,
					 .q = f->base + (f->n - n_q) * bytes,
					 .q_stride = bytes,
					 .n_q = n_q,
					 .q_pos = f->n - n_q,
					 .n_k = f->n,
					 .stride = stride,
					 .block_tokens = 128};
}

static void check_estimate(struct oracle_random *random, enum work_dtype dtype, uint32_t n_q,
			   uint32_t stride)
{
	struct fixture f;

	fixture_init(&f, dtype, random);
	struct backend_estimate e = estimate_of(&f, n_q, stride);
	struct estimate_shape shape = {
		6, 3, f.shape.head_dim, stride, e.block_tokens, (double)f.shape.scale};
	struct estimate_input input = {.q = f.q + (size_t)(N - n_q) * q_values(&f),
				       .k = f.k,
				       .n_q = n_q,
				       .q_pos = N - n_q,
				       .n_k = N};
	size_t n = 3u * estimate_n_blocks(n_q, 128) * estimate_n_blocks(N, 128);
	double *want = malloc(n * sizeof(*want));
	float *got = malloc(n * sizeof(*got));

	assert_int_equal(estimate_blocks(&shape, &input, want), 0);
	assert_int_equal(ops->estimate(f.backend, &e, got), 0);
	/* A score is a sum of 512 products in fp32, at most 40 here: some 2e-5 off, and so are its weights. */
	for (size_t i = 0; i < n; i++)
		assert_true(fabs((double)got[i] - want[i]) <= 1e-4 * want[i] + 1e-30);
	free(got);
	free(want);
	fixture_done(&f);
}

static void test_masses_are_those_of_the_twin(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	enum work_dtype exact = on_cpu() ? WORK_FP32 : WORK_FP16;

	(void)state;
	check_estimate(&random, exact, 300, 8);
	check_estimate(&random, WORK_FP16, 252, 8);
	check_estimate(&random, WORK_BF16, 20, 8);
	check_estimate(&random, exact, 300, 16);
}

/* Nodes that begin within a page, and within a group: windows of several pages. */
static void test_masses_of_pages_that_are_shared(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f, askew;
	uint32_t n = 0;
	size_t n_mass = 3u * 3 * estimate_n_blocks(N, 128);
	float *want = malloc(n_mass * sizeof(*want)), *got = malloc(n_mass * sizeof(*got));

	(void)state;
	fixture_init(&f, WORK_FP16, &random);
	struct backend_estimate e = estimate_of(&f, CHUNK, 8);
	assert_int_equal(ops->estimate(f.backend, &e, want), 0);
	askew = f;
	for (uint32_t at = 0; at < N; n++) { /* the same tokens, page after page in other pieces */
		uint32_t page = at / PAGE, first = at % PAGE, left = PAGE - first;
		uint32_t count = 1 + oracle_below(&random, left);
		count = N - at < count ? N - at : count;
		if (n + (N - at) / PAGE + 2 >= PAGES_MOST)
			count = N - at < left ? N - at : left;
		askew.slices[n] =
			(struct work_slice){f.slices[page].page, (uint16_t)first, (uint16_t)count};
		at += count;
	}
	e.slices = askew.slices;
	e.n_slices = n;
	assert_int_equal(ops->estimate(f.backend, &e, got), 0);
	assert_memory_equal(got, want, n_mass * sizeof(*got));
	free(want);
	free(got);
	fixture_done(&f);
}

static void test_bad_estimates_are_refused(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;
	float mass[256];

	(void)state;
	fixture_init(&f, WORK_FP16, &random);
	struct backend_estimate e = estimate_of(&f, 300, 12);
	assert_int_equal(ops->estimate(f.backend, &e, mass), -EINVAL);
	e = estimate_of(&f, 301, 8);
	assert_int_equal(ops->estimate(f.backend, &e, mass), -EINVAL);
	e = estimate_of(&f, 300, 8);
	e.n_slices--;
	assert_int_equal(ops->estimate(f.backend, &e, mass), -EINVAL);
	fixture_done(&f);
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

/* Everything that was written by nobody is NaN. */
static struct backend_io output(const struct fixture *f, uint32_t which)
{
	uint64_t bytes = row_bytes(f, q_values(f));

	memset(f->arena + o_offset(f, which), 0xff, f->chunk * bytes);
	return (struct backend_io){.q = f->base + (f->n - f->chunk) * bytes,
				   .o = f->base + o_offset(f, which),
				   .q_stride = bytes,
				   .o_stride = bytes};
}

static float *output_values(const struct fixture *f, uint32_t which)
{
	size_t n = (size_t)f->chunk * q_values(f);
	float *o = malloc(n * sizeof(*o));

	oracle_decode(f->shape.dtype, o, f->arena + o_offset(f, which), n);
	return o;
}

/* In float64, of one row and query head, over the kept blocks; kept NULL: all. */
static void attend_row(const struct fixture *f, uint32_t row, uint32_t q_head, const uint64_t *kept,
		       uint32_t block_tokens, double *ret)
{
	uint32_t dim = f->shape.head_dim, pos = f->n - f->chunk + row;
	uint32_t head = q_head / (f->shape.n_q_heads / f->shape.n_kv_heads);
	const float *q = f->q + (size_t)pos * q_values(f) + q_head * dim;
	double max = -INFINITY, sum = 0, *scores = malloc((pos + 1) * sizeof(*scores));

	for (uint32_t t = 0; t <= pos; t++) {
		const float *k = f->k + (size_t)t * k_values(f) + head * dim;
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
		const float *v = f->v + (size_t)t * k_values(f) + head * dim;
		double weight = exp(scores[t] - max);
		sum += weight;
		for (uint32_t i = 0; i < dim && weight > 0; i++)
			ret[i] += weight * v[i];
	}
	for (uint32_t i = 0; i < dim; i++)
		ret[i] /= sum;
	free(scores);
}

/* What the blocks are of a row and KV head. */
typedef const uint64_t *(*kept_function)(const struct fixture *f, const void *of, uint32_t row,
					 uint32_t head);

/* Norm of what is wrong over the norm of what is right. */
static double error_of(const struct fixture *f, uint32_t which, kept_function kept, const void *of)
{
	uint32_t dim = f->shape.head_dim, group = f->shape.n_q_heads / f->shape.n_kv_heads;
	float *got = output_values(f, which);
	double want[256], wrong = 0, all = 0;

	for (uint32_t row = 0; row < f->chunk; row++)
		for (uint32_t h = 0; h < f->shape.n_q_heads; h++) {
			const float *o = got + (size_t)row * q_values(f) + h * dim;
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

static const uint64_t *kept_of_head(const struct fixture *f, const void *of, uint32_t row,
				    uint32_t head)
{
	(void)f;
	(void)row;
	return (const uint64_t *)of + head;
}

/* Lists of random blocks, one for each KV head: together they write what each writes of its head alone. */
static void check_single_heads(enum work_dtype dtype, struct oracle_random *random)
{
	struct work_list lists[3] = {0};
	struct backend_job jobs[3];
	struct backend_io io;
	struct fixture f;
	uint64_t kept[3];

	fixture_init(&f, dtype, random);
	struct plan_config plan = plan_of(&f);
	io = output(&f, 0);
	for (uint32_t head = 0; head < 3; head++) {
		kept[head] = 1 | (uint64_t)oracle_below(random, 1u << estimate_n_blocks(N, BLOCK));
		struct select_query chosen = {&kept[head], estimate_n_blocks(N, BLOCK)};
		assert_int_equal(select_plan(&plan, &f.tree, &chosen, BLOCK, &lists[head]), 0);
		jobs[head] = job_of(&f, &lists[head], &io);
		jobs[head].head = head;
		jobs[head].n_heads = 1;
	}
	run(&f, jobs, 3);
	assert_true(error_of(&f, 0, kept_of_head, kept) < bounds[dtype]);
	for (uint32_t head = 0; head < 3; head++)
		plan_list_done(&lists[head]);
	fixture_done(&f);
}

static void test_jobs_of_single_heads_write_their_heads_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	if (on_cpu())
		check_single_heads(WORK_FP32, &random);
	check_single_heads(WORK_FP16, &random);
	check_single_heads(WORK_BF16, &random);
}

/* tau = 1 by way of estimate, selection and jobs of heads; on the CPU the bits of exact attention. */
static void check_all_blocks(enum work_dtype dtype, struct oracle_random *random)
{
	const struct select_config config = {.tau = 1};
	struct select_shares shares = {0};
	struct work_list exact = {0}, chosen = {0};
	struct fixture f;

	fixture_init(&f, dtype, random);
	struct plan_config plan = plan_of(&f);
	struct select_chunk chunk = {128, N - CHUNK, CHUNK, 0, estimate_n_blocks(N, 128)};
	struct backend_estimate e = estimate_of(&f, CHUNK, 8);
	float *mass = malloc(3u * 3 * chunk.n_blocks * sizeof(*mass));
	struct backend_io io = output(&f, 0), io_exact = output(&f, 1), ios[3];
	uint64_t kept[3];
	struct work_query queries[3];
	struct select_query selected[3];
	struct work_tree tree = f.tree;

	assert_int_equal(ops->estimate(f.backend, &e, mass), 0);
	tree.queries = queries;
	tree.n_queries = select_n_ranges(&chunk);
	assert_int_equal(tree.n_queries, 3);
	for (uint32_t head = 0; head < 3; head++) {
		const float *of_head = mass + (size_t)head * 3 * chunk.n_blocks;
		assert_int_equal(select_chunk(&config, &chunk, of_head, kept, &shares), 0);
		for (uint32_t i = 0; i < 3; i++) {
			struct select_range range = select_range_at(&chunk, i);
			queries[i] = (struct work_query){0, N - CHUNK + range.begin,
							 range.end - range.begin, NULL};
			selected[i] = (struct select_query){&kept[i], chunk.n_blocks};
			ios[i] = io;
			ios[i].q += range.begin * io.q_stride;
			ios[i].o += range.begin * io.o_stride;
		}
		assert_int_equal(select_plan(&plan, &tree, selected, 128, &chosen), 0);
		struct backend_job job = job_of(&f, &chosen, ios);
		job.tree = &tree;
		job.head = head;
		job.n_heads = 1;
		run(&f, &job, 1);
	}
	assert_true(shares.attended == shares.visible);
	assert_int_equal(plan_make(&plan, &f.tree, &exact), 0);
	struct backend_job job = job_of(&f, &exact, &io_exact);
	run(&f, &job, 1);
	if (on_cpu())
		assert_memory_equal(f.arena + o_offset(&f, 0), f.arena + o_offset(&f, 1),
				    CHUNK * row_bytes(&f, q_values(&f)));
	assert_true(error_of(&f, 0, NULL, NULL) < bounds[dtype]);
	assert_true(error_of(&f, 1, NULL, NULL) < bounds[dtype]);
	plan_list_done(&exact);
	plan_list_done(&chosen);
	free(mass);
	fixture_done(&f);
}

static void test_all_blocks_are_exact_attention(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	check_all_blocks(on_cpu() ? WORK_FP32 : WORK_FP16, &random);
}

/* ---- blocks of all heads at once ---------------------------------------------------------------------------------- */

#define RANGES_MOST 40u

struct choice {
	struct backend_chosen of;
	uint32_t ranges[RANGES_MOST];
	uint64_t *kept; /* owned */
};

static const uint64_t *kept_of_range(const struct fixture *f, const void *of, uint32_t row,
				     uint32_t head)
{
	const struct choice *c = of;
	uint32_t range = c->of.n_ranges - 1;

	(void)f;
	while (c->ranges[range] > row)
		range--;
	return c->kept + ((size_t)head * c->of.n_ranges + range) * select_n_words(c->of.n_blocks);
}

/* Ranges of any length, blocks at random, but those that rows stand in. */
static void choice_make(const struct fixture *f, struct choice *c, struct oracle_random *random)
{
	uint32_t n_blocks = estimate_n_blocks(f->n, BLOCK), n_words = select_n_words(n_blocks);
	uint32_t n = 1 + oracle_below(random, 8), pos = f->n - f->chunk;
	uint32_t most = oracle_below(random, 2) ? 101 : 30; /* per cent */

	*c = (struct choice){.of = {.slices = f->slices,
				    .n_slices = f->tree.n_slices,
				    .block_tokens = BLOCK,
				    .n_blocks = n_blocks,
				    .n_ranges = n}};
	for (uint32_t i = 1; i < n; i++)
		c->ranges[i] = c->ranges[i - 1] + 1 + oracle_below(random, f->chunk / n - 1);
	c->kept = calloc((size_t)f->shape.n_kv_heads * n * n_words, sizeof(*c->kept));
	for (uint32_t i = 0; i < f->shape.n_kv_heads * n; i++) {
		uint32_t range = i % n, end = range + 1 < n ? c->ranges[range + 1] : f->chunk;
		uint32_t first = (pos + c->ranges[range]) / BLOCK, last = (pos + end - 1) / BLOCK;
		uint32_t share = oracle_below(random, most);
		for (uint32_t b = 0; b < n_blocks; b++)
			if ((b >= first && b <= last) || oracle_below(random, 100) < share)
				c->kept[i * n_words + b / 64] |= UINT64_C(1) << b % 64;
	}
	c->of.kept = c->kept;
	c->of.ranges = c->ranges;
}

/* The path without what no row attends to. */
static struct backend_chosen with_holes(const struct fixture *f, const struct choice *c,
					struct work_slice *slices)
{
	uint32_t n_words = select_n_words(c->of.n_blocks);
	struct backend_chosen ret = c->of;

	memcpy(slices, f->slices, f->tree.n_slices * sizeof(*slices));
	for (uint32_t i = 0; i < f->tree.n_slices; i++) {
		bool kept = false;
		for (uint32_t e = 0; e < f->shape.n_kv_heads * c->of.n_ranges; e++)
			kept = kept || select_has(c->kept + e * n_words, i * PAGE / BLOCK);
		slices[i].page = kept ? slices[i].page : WORK_NONE;
	}
	ret.slices = slices;
	return ret;
}

/* The job appends its rows' tokens too: once more, that is. */
static void append_with(const struct fixture *f, struct work_slice *slots, struct backend_io *io)
{
	uint64_t bytes = row_bytes(f, k_values(f));
	uint32_t pos = f->n - f->chunk;

	io->k = f->base + k_offset(f) + pos * bytes;
	io->v = io->k + f->n * bytes;
	io->k_stride = io->v_stride = bytes;
	io->slots = slots;
	for (uint32_t n; pos < f->n; pos += n) {
		n = PAGE - pos % PAGE < f->n - pos ? PAGE - pos % PAGE : f->n - pos;
		slots[io->n_slots++] = (struct work_slice){f->slices[pos / PAGE].page,
							   (uint16_t)(pos % PAGE), (uint16_t)n};
	}
}

static void check_chosen(struct fixture *f, struct oracle_random *random)
{
	struct work_slice slices[PAGES_MOST], slots[PAGES_MOST];
	struct work_list list = {0};
	struct choice c;

	fixture_make(f, random);
	struct plan_config plan = plan_of(f);
	struct backend_io io[2] = {output(f, 0), output(f, 1)};
	struct backend_job jobs[2] = {job_of(f, &list, &io[0]), job_of(f, &list, &io[1])};
	choice_make(f, &c, random);
	append_with(f, slots, &io[1]);
	const struct backend_chosen all = {f->slices,	  f->tree.n_slices, BLOCK, c.of.n_blocks,
					   c.of.n_ranges, c.ranges,	    NULL};
	jobs[0].chosen = &c.of;
	jobs[1].chosen = &all;
	assert_int_equal(plan_make(&plan, &f->tree, &list), 0);
	assert_true(ops->takes_chosen(f->backend, &jobs[0]));
	run(f, jobs, 2);
	double error = error_of(f, 0, kept_of_range, &c), error_all = error_of(f, 1, NULL, NULL);
	if (!(error < bounds[f->shape.dtype] && error_all < bounds[f->shape.dtype]))
		fail_msg("dim %u, %u/%u heads, %u of %u tokens, %u ranges: %g and %g off",
			 f->shape.head_dim, f->shape.n_q_heads, f->shape.n_kv_heads, f->chunk, f->n,
			 c.of.n_ranges, error, error_all);
	const struct backend_chosen holes = with_holes(f, &c, slices);
	output(f, 0);
	jobs[0].chosen = &holes;
	assert_true(ops->takes_chosen(f->backend, &jobs[0]));
	run(f, jobs, 1);
	assert_true(error_of(f, 0, kept_of_range, &c) < bounds[f->shape.dtype]);
	jobs[0].chosen = &c.of;
	f->slices[0].first++; /* a page that is shared from within a group on */
	f->slices[0].count--;
	assert_false(ops->takes_chosen(f->backend, &jobs[0]));
	free(c.kept);
	plan_list_done(&list);
	fixture_done(f);
}

static void test_chosen_blocks_of_all_heads_at_once(void **state)
{
	static const uint32_t shapes[][6] = {
		/* dim, heads, KV heads, tokens, of which ask, dtype */
		{128, 2, 2, 1900, 500, WORK_FP16}, {128, 4, 1, 1000, 333, WORK_BF16},
		{64, 6, 2, 2048, 256, WORK_FP16},  {256, 2, 1, 900, 200, WORK_FP16},
		{128, 16, 1, 700, 40, WORK_FP16},  {64, 1, 1, 300, 300, WORK_BF16},
		{128, 3, 3, 2500, 130, WORK_FP16}, {128, 10, 2, 777, 129, WORK_FP16},
	};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && ops->takes_chosen; i++) {
		const uint32_t *s = shapes[i];
		struct fixture f = {.n = s[3],
				    .chunk = s[4],
				    .shape = {.n_layers = 2,
					      .n_q_heads = s[1],
					      .n_kv_heads = s[2],
					      .head_dim = s[0],
					      .page_tokens = PAGE,
					      .dtype = (enum work_dtype)s[5],
					      .scale = 1 / sqrtf((float)s[0])}};
		check_chosen(&f, &random);
	}
}

/* ---- choosing ----------------------------------------------------------------------------------------------------- */

static void test_a_chunk_keeps_the_blocks_of_its_own_queries(void **state)
{
	const float mass[3 * 8] = {8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 1,
				   0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0};
	const struct select_config config = {.tau = 0.5};
	/* Queries 310 to 449: the first 10 without an estimate. */
	struct select_chunk chunk = {64, 310, 140, 10, 8};
	struct select_shares shares = {0};
	uint64_t kept[3];

	(void)state;
	assert_int_equal(select_n_ranges(&chunk), 3);
	assert_int_equal(select_range_at(&chunk, 0).begin, 0);
	assert_int_equal(select_range_at(&chunk, 0).end, 74);
	assert_int_equal(select_range_at(&chunk, 2).begin, 138);
	assert_int_equal(select_range_at(&chunk, 2).end, 140);
	assert_int_equal(select_chunk(&config, &chunk, mass, kept, &shares), 0);
	assert_int_equal(kept[0], 1 | 1 << 4 | 1 << 5); /* positions 310 to 383 */
	assert_int_equal(kept[1], 1 | 1 << 6); /* 384 to 447, whose squares begin at 384 */
	assert_int_equal(kept[2], 1 << 1 | 1 << 7);
	assert_true(shares.visible == 74 * 6 + 64 * 7 + 2 * 8);
	assert_true(shares.attended == 74 * 3 + 64 * 2 + 2 * 2);
	assert_true(shares.kept_mass == 24 && shares.total_mass == 25);
}

/* 0, or why there is nothing to test. */
static int find_device(const char *path)
{
	struct backend_config config = {.pool_bytes = 2 * MIB, .extent_bytes = 2 * MIB};
	void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	char error[256] = "";
	struct backend *b = NULL;
	cuda_ops find = NULL;

	if (module)
		*(void **)&find = dlsym(module, CUDA_MODULE_OPS);
	if (!find) {
		printf("%s does not load: %s\n", path, dlerror());
		return 1;
	}
	ops = find();
	if (ops->open(&config, &b, error, sizeof(error)) != 0) {
		printf("skipped: %s\n", error);
		return SKIPPED;
	}
	ops->close(b);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masses_are_those_of_the_twin),
		cmocka_unit_test(test_masses_of_pages_that_are_shared),
		cmocka_unit_test(test_bad_estimates_are_refused),
		cmocka_unit_test(test_jobs_of_single_heads_write_their_heads_alone),
		cmocka_unit_test(test_all_blocks_are_exact_attention),
		cmocka_unit_test(test_chosen_blocks_of_all_heads_at_once),
		cmocka_unit_test(test_a_chunk_keeps_the_blocks_of_its_own_queries),
	};
	int r = argc > 1 ? find_device(argv[1]) : 0;

	return r ? r : cmocka_run_group_tests(tests, NULL, NULL);
}
