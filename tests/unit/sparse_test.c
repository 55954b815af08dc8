/*
 * sparse_test.c - what a backend does for sparse prefill: masses of blocks estimated from its pages, and jobs of some KV
 * heads alone; and blocks chosen for a chunk of queries.
 *
 * One sequence of N tokens, the last CHUNK of which ask.
 */
#include "oracle.h"

#include "kernels/backend.h"
#include "kernels/cpu/estimate.h"
#include "kernels/plan/select.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define PAGE 32u
#define N 700u
#define CHUNK 300u
#define N_PAGES ((N + PAGE - 1) / PAGE)
#define BLOCK 64u
#define N_BLOCKS ((N + BLOCK - 1) / BLOCK)

struct fixture {
	struct work_shape shape;
	struct backend *backend; /* owned */
	struct work_slice slices[N_PAGES];
	struct work_node node;
	struct work_query query;
	struct work_tree tree;
	float *q, *k, *v; /* owned, as the dtype has them, of all N tokens */
	void *q_raw, *k_raw, *v_raw; /* owned */
};

static uint32_t q_values(const struct fixture *f)
{
	return f->shape.n_q_heads * f->shape.head_dim;
}

static uint32_t k_values(const struct fixture *f)
{
	return f->shape.n_kv_heads * f->shape.head_dim;
}

static float *make_values(const struct fixture *f, struct oracle_random *random, size_t n,
			  void **ret_raw)
{
	float *values = malloc(n * sizeof(*values));

	for (size_t i = 0; i < n; i++)
		values[i] = 2 * oracle_normal(random);
	*ret_raw = malloc(n * work_dtype_bytes(f->shape.dtype));
	oracle_encode(f->shape.dtype, *ret_raw, values, n);
	oracle_decode(f->shape.dtype, values, *ret_raw, n);
	return values;
}

static uint64_t run(struct fixture *f, const struct backend_job *jobs, uint32_t n_jobs)
{
	uint64_t id = 0, done = 0;

	assert_int_equal(backend_cpu.submit(f->backend, &(struct backend_batch){jobs, n_jobs}, &id),
			 0);
	assert_int_equal(backend_cpu.completed(f->backend, &done), 0);
	assert_true(done >= id);
	return id;
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
	plan.tile_rows = backend_cpu.tile_rows(f->backend, &f->shape);
	return plan;
}

static void append_all(struct fixture *f)
{
	uint64_t bytes = k_values(f) * work_dtype_bytes(f->shape.dtype);
	struct backend_io io = {.k = (uintptr_t)f->k_raw,
				.v = (uintptr_t)f->v_raw,
				.k_stride = bytes,
				.v_stride = bytes,
				.slots = f->slices,
				.n_slots = N_PAGES};
	struct work_query all = {.node = 0, .pos = 0, .n_rows = N};
	struct plan_config plan = plan_of(f);
	struct work_list list = {0};
	struct backend_job job = job_of(f, &list, &io);

	f->tree.queries = &all;
	assert_int_equal(plan_make(&plan, &f->tree, &list), 0);
	run(f, &job, 1);
	plan_list_done(&list);
	f->tree.queries = &f->query;
}

static void fixture_init(struct fixture *f, enum work_dtype dtype, struct oracle_random *random)
{
	struct backend_config config = {.pool_bytes = 16 * MIB,
					.extent_bytes = 2 * MIB,
					.n_threads = 2};
	char error[200];

	*f = (struct fixture){.shape = {.n_layers = 2,
					.n_q_heads = 6,
					.n_kv_heads = 3,
					.head_dim = 32,
					.page_tokens = PAGE,
					.dtype = dtype,
					.scale = 0.15f}};
	assert_int_equal(backend_cpu.open(&config, &f->backend, error, sizeof(error)), 0);
	assert_int_equal(backend_cpu.extent_commit(f->backend, 0), 0);
	for (uint32_t i = 0; i < N_PAGES; i++)
		f->slices[i] =
			(struct work_slice){.page = N_PAGES - i,
					    .count = N - i * PAGE < PAGE ? N - i * PAGE : PAGE};
	f->node = (struct work_node){.parent = WORK_NONE, .n_tokens = N, .n_slices = N_PAGES};
	f->query = (struct work_query){.pos = N - CHUNK, .n_rows = CHUNK};
	f->tree = (struct work_tree){.nodes = &f->node,
				     .slices = f->slices,
				     .queries = &f->query,
				     .n_nodes = 1,
				     .n_slices = N_PAGES,
				     .n_queries = 1};
	f->q = make_values(f, random, (size_t)N * q_values(f), &f->q_raw);
	f->k = make_values(f, random, (size_t)N * k_values(f), &f->k_raw);
	f->v = make_values(f, random, (size_t)N * k_values(f), &f->v_raw);
	append_all(f);
}

static void fixture_done(struct fixture *f)
{
	backend_cpu.close(f->backend);
	free(f->q);
	free(f->k);
	free(f->v);
	free(f->q_raw);
	free(f->k_raw);
	free(f->v_raw);
}

static struct backend_estimate estimate_of(const struct fixture *f, uint32_t n_q, uint32_t stride)
{
	uint64_t row_bytes = q_values(f) * work_dtype_bytes(f->shape.dtype);

	return (struct backend_estimate){.shape = &f->shape,
					 .slices = f->slices,
					 .n_slices = N_PAGES,
					 .layer = 1,
					 .q = (uintptr_t)f->q_raw + (N - n_q) * row_bytes,
					 .q_stride = row_bytes,
					 .n_q = n_q,
					 .q_pos = N - n_q,
					 .n_k = N,
					 .stride = stride,
					 .block_tokens = 128};
}

static void check_estimate(struct oracle_random *random, enum work_dtype dtype, uint32_t n_q,
			   uint32_t stride)
{
	struct fixture f;

	fixture_init(&f, dtype, random);
	struct backend_estimate e = estimate_of(&f, n_q, stride);
	struct estimate_shape shape = {6, 3, 32, stride, e.block_tokens, (double)f.shape.scale};
	struct estimate_input input = {.q = f.q + (size_t)(N - n_q) * q_values(&f),
				       .k = f.k,
				       .n_q = n_q,
				       .q_pos = N - n_q,
				       .n_k = N};
	size_t n = 3u * estimate_n_blocks(n_q, 128) * estimate_n_blocks(N, 128);
	double *want = malloc(n * sizeof(*want));
	float *got = malloc(n * sizeof(*got));

	assert_int_equal(estimate_blocks(&shape, &input, want), 0);
	assert_int_equal(backend_cpu.estimate(f.backend, &e, got), 0);
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

	(void)state;
	check_estimate(&random, WORK_FP32, 300, 8);
	check_estimate(&random, WORK_FP16, 252, 8);
	check_estimate(&random, WORK_BF16, 20, 8);
	check_estimate(&random, WORK_FP32, 300, 16);
}

static void test_bad_estimates_are_refused(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct fixture f;
	float mass[256];

	(void)state;
	fixture_init(&f, WORK_FP32, &random);
	struct backend_estimate e = estimate_of(&f, 300, 12);
	assert_int_equal(backend_cpu.estimate(f.backend, &e, mass), -EINVAL);
	e = estimate_of(&f, 301, 8);
	assert_int_equal(backend_cpu.estimate(f.backend, &e, mass), -EINVAL);
	e = estimate_of(&f, 300, 8);
	e.n_slices--;
	assert_int_equal(backend_cpu.estimate(f.backend, &e, mass), -EINVAL);
	fixture_done(&f);
}

/* Everything that was written by nobody is NaN. */
static float *output(const struct fixture *f, struct backend_io *ret_io)
{
	size_t n = (size_t)CHUNK * q_values(f);
	float *o = malloc(n * sizeof(*o));

	for (size_t i = 0; i < n; i++)
		o[i] = NAN;
	*ret_io = (struct backend_io){.q = (uintptr_t)f->q_raw + (N - CHUNK) * q_values(f) * 4,
				      .o = (uintptr_t)o,
				      .q_stride = q_values(f) * 4,
				      .o_stride = q_values(f) * 4};
	return o;
}

/* Lists of random blocks, one for each KV head: together they write what each writes of its head alone. */
static void test_jobs_of_single_heads_write_their_heads_alone(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct work_list lists[3] = {0};
	struct backend_job jobs[3];
	struct backend_io io, io_one;
	struct fixture f;

	(void)state;
	fixture_init(&f, WORK_FP32, &random);
	struct plan_config plan = plan_of(&f);
	float *o = output(&f, &io);
	for (uint32_t head = 0; head < 3; head++) {
		uint64_t kept = 1 | (uint64_t)oracle_below(&random, 1u << N_BLOCKS);
		struct select_query chosen = {&kept, N_BLOCKS};
		assert_int_equal(select_plan(&plan, &f.tree, &chosen, BLOCK, &lists[head]), 0);
		jobs[head] = job_of(&f, &lists[head], &io);
		jobs[head].head = head;
		jobs[head].n_heads = 1;
	}
	run(&f, jobs, 3);
	for (uint32_t head = 0; head < 3; head++) {
		float *one = output(&f, &io_one);
		struct backend_job all = job_of(&f, &lists[head], &io_one);
		run(&f, &all, 1);
		for (uint32_t row = 0; row < CHUNK; row++) {
			size_t at = (size_t)row * q_values(&f) + head * 2 * f.shape.head_dim;
			assert_memory_equal(o + at, one + at, 2 * f.shape.head_dim * sizeof(*o));
		}
		free(one);
		plan_list_done(&lists[head]);
	}
	free(o);
	fixture_done(&f);
}

/* tau = 1 by way of estimate, selection and jobs of heads: the bits of exact attention. */
static void test_all_blocks_are_exact_attention(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	const struct select_config config = {.tau = 1};
	struct select_shares shares = {0};
	struct work_list exact = {0}, chosen = {0};
	struct backend_io io, io_exact;
	struct fixture f;

	(void)state;
	fixture_init(&f, WORK_FP32, &random);
	struct plan_config plan = plan_of(&f);
	struct select_chunk chunk = {128, N - CHUNK, CHUNK, 0, estimate_n_blocks(N, 128)};
	struct backend_estimate e = estimate_of(&f, CHUNK, 8);
	float *mass = malloc(3u * 3 * chunk.n_blocks * sizeof(*mass));
	float *o = output(&f, &io), *o_exact = output(&f, &io_exact);
	uint64_t kept[3];
	struct work_query queries[3];
	struct select_query selected[3];
	struct backend_io ios[3];
	struct work_tree tree = f.tree;

	assert_int_equal(backend_cpu.estimate(f.backend, &e, mass), 0);
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
	assert_memory_equal(o, o_exact, (size_t)CHUNK * q_values(&f) * sizeof(*o));
	plan_list_done(&exact);
	plan_list_done(&chosen);
	free(mass);
	free(o);
	free(o_exact);
	fixture_done(&f);
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masses_are_those_of_the_twin),
		cmocka_unit_test(test_bad_estimates_are_refused),
		cmocka_unit_test(test_jobs_of_single_heads_write_their_heads_alone),
		cmocka_unit_test(test_all_blocks_are_exact_attention),
		cmocka_unit_test(test_a_chunk_keeps_the_blocks_of_its_own_queries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
