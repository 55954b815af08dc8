/*
 * estimate_cuda_test.c - the device's estimates against their twin in float64, over pages in any
 * order, windows of several pages, and ends within a square. "estimate_cuda_test time" times them
 * instead, over a path of 65,536 and 131,072 keys whose pages lie anywhere. Without a device the
 * program says so and exits with 77.
 */
#include "estimate_model.h"
#include "kernels/cuda/device/kv_layout.h"
#include "kernels/cuda/sparse/estimate.h"
#include "oracle.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SKIPPED 77
#define LAYERS 2u
#define LAYER 1u
#define LOG2_E 1.4426950408889634
#define EXTENT_BYTES (UINT64_C(2) << 20)
/* A score is a sum of up to 4,096 products in fp32, up to 60 here; exp2 has 2 units of the last
 * place. */
#define BOUND 1e-5

struct shape {
	uint32_t dim, n_q_heads, n_kv_heads, stride, block_tokens, n_q, q_pos, page_tokens;
	uint32_t mixed; /* of 100 windows, so many have tokens of two pages each */
	enum work_dtype dtype;
	bool in_order; /* pages side by side */
};

/* Host's and device's side of one estimate. */
struct world {
	struct shape s;
	struct oracle_random *random;
	uint32_t n_k, n_windows, n_lists;
	uint32_t *places; /* owned, [2 x pages of the path]: in the pool */
	uint32_t *page_of; /* owned, [n_k]: which of the two */
	uint32_t *windows, *lists; /* owned */
	float *q, *k; /* owned, as the dtype has them */
	char *pool, *q_raw; /* owned */
	uint64_t pool_bytes, page_bytes, head_bytes;
	struct device_estimate e;
};

static void check(cudaError_t r)
{
	if (r != cudaSuccess)
		fail_msg("%s", cudaGetErrorString(r));
}

static void *zeroed(size_t n, size_t bytes)
{
	void *at = calloc(n, bytes);

	assert_non_null(at);
	return at;
}

static void *upload(const void *from, size_t bytes)
{
	void *to;

	check(cudaMalloc(&to, bytes + 16));
	check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
	return to;
}

/* ---- the path ------------------------------------------------------------------------------- */

/* Where the token's KV block begins, in units. */
static uint32_t group_of(const struct world *w, uint32_t token)
{
	uint64_t page = w->places[2 * (token / w->s.page_tokens) + w->page_of[token]];
	uint64_t at = page * w->page_bytes +
		      (uint64_t)(token % w->s.page_tokens / 8) * kv_block_bytes(w->s.dim, w->s.dim);

	return (uint32_t)(at / estimate_unit_bytes(w->s.dim));
}

static void list_window(struct world *w, uint32_t window)
{
	w->windows[window] = ESTIMATE_LISTED | w->n_lists;
	for (uint32_t i = 0; i < ESTIMATE_WINDOW_TOKENS; i++) {
		uint32_t token = window * ESTIMATE_WINDOW_TOKENS + i;
		w->lists[w->n_lists * ESTIMATE_WINDOW_TOKENS + i] =
			token < w->n_k ? group_of(w, token) : DEVICE_NONE;
	}
	w->n_lists++;
}

static void make_path(struct world *w)
{
	uint32_t n_places = 2 * estimate_n_blocks(w->n_k, w->s.page_tokens);

	w->places = zeroed(n_places, sizeof(*w->places));
	w->page_of = zeroed(w->n_k, sizeof(*w->page_of));
	w->windows = zeroed(w->n_windows, sizeof(*w->windows));
	w->lists = zeroed(w->n_windows * ESTIMATE_WINDOW_TOKENS, sizeof(*w->lists));
	for (uint32_t i = 0; i < n_places; i++) {
		uint32_t j = oracle_below(w->random, i + 1);
		w->places[i] = w->places[j];
		w->places[j] = i;
	}
	for (uint32_t i = 0; i < n_places && w->s.in_order; i++)
		w->places[i] = i % 2 * (n_places / 2) + i / 2;
	for (uint32_t i = 0; i < w->n_windows; i++) {
		uint32_t begin = i * ESTIMATE_WINDOW_TOKENS, end = begin + ESTIMATE_WINDOW_TOKENS;
		bool mixed = oracle_below(w->random, 100) < w->s.mixed;
		for (uint32_t t = begin; t < end && t < w->n_k; t++)
			w->page_of[t] = mixed ? oracle_below(w->random, 2) : 0;
		if (mixed || end > w->n_k || w->s.page_tokens < ESTIMATE_WINDOW_TOKENS)
			list_window(w, i);
		else
			w->windows[i] = group_of(w, begin);
	}
}

/* As kv_layout.h lays K out. */
static void store_key(struct world *w, uint32_t token, uint32_t head, const float *values)
{
	uint32_t row = token % 8, dim = w->s.dim;
	char *group = w->pool + (uint64_t)group_of(w, token) * estimate_unit_bytes(dim) +
		      (LAYER * w->s.n_kv_heads + head) * w->head_bytes;

	for (uint32_t chunk = 0; chunk < dim / 8; chunk++)
		oracle_encode(w->s.dtype, group + kv_chunk_offset(dim, row, chunk),
			      values + chunk * 8, 8);
}

/* Whatever is no key of the path is NaN. */
static void make_values(struct world *w)
{
	size_t n_q = (size_t)w->s.n_q * w->s.n_q_heads * w->s.dim;
	size_t n_k = (size_t)w->n_k * w->s.n_kv_heads * w->s.dim;

	w->q = zeroed(n_q, sizeof(float));
	w->k = zeroed(n_k, sizeof(float));
	w->q_raw = zeroed(n_q, 2);
	w->pool = zeroed(w->pool_bytes, 1);
	memset(w->pool, 0xff, w->pool_bytes);
	for (size_t i = 0; i < n_q; i++)
		w->q[i] = 2 * oracle_normal(w->random);
	oracle_encode(w->s.dtype, w->q_raw, w->q, n_q);
	oracle_decode(w->s.dtype, w->q, w->q_raw, n_q);
	for (size_t i = 0; i < n_k; i++) {
		uint16_t raw;
		w->k[i] = 2 * oracle_normal(w->random);
		oracle_encode(w->s.dtype, &raw, &w->k[i], 1);
		oracle_decode(w->s.dtype, &w->k[i], &raw, 1);
	}
	for (uint32_t t = 0; t < w->n_k; t++)
		for (uint32_t h = 0; h < w->s.n_kv_heads; h++)
			store_key(w, t, h, w->k + ((size_t)t * w->s.n_kv_heads + h) * w->s.dim);
}

static void world_init(struct world *w, const struct shape *s, struct oracle_random *random)
{
	*w = (struct world){.s = *s, .random = random, .n_k = s->q_pos + s->n_q};
	w->n_windows = estimate_n_blocks(w->n_k, ESTIMATE_WINDOW_TOKENS);
	w->head_bytes = (uint64_t)s->page_tokens * 4 * s->dim;
	w->page_bytes = w->head_bytes * s->n_kv_heads * LAYERS;
	w->pool_bytes = 2 * estimate_n_blocks(w->n_k, s->page_tokens) * w->page_bytes;
	w->pool_bytes = round_up(w->pool_bytes, EXTENT_BYTES);
	make_path(w);
	make_values(w);
}

static void world_done(struct world *w)
{
	free(w->places);
	free(w->page_of);
	free(w->windows);
	free(w->lists);
	free(w->q);
	free(w->k);
	free(w->q_raw);
	free(w->pool);
}

static struct device_estimate estimate_of(const struct shape *s, uint64_t head_bytes,
					  uint64_t pool_bytes)
{
	uint64_t page_bytes = head_bytes * s->n_kv_heads * LAYERS;

	return (struct device_estimate){
		.shape = {.head_dim = s->dim,
			  .bf16 = s->dtype == WORK_BF16,
			  .n_kv_heads = s->n_kv_heads,
			  .group = s->n_q_heads / s->n_kv_heads,
			  .head_bytes = head_bytes,
			  .scale_log2 = (float)(LOG2_E / sqrt(s->dim))},
		.stride = s->stride,
		.block_tokens = s->block_tokens,
		.n_q = s->n_q,
		.q_pos = s->q_pos,
		.n_k = s->q_pos + s->n_q,
		.page_tokens = s->page_tokens,
		.layer = LAYER,
		.q_stride = (uint64_t)s->n_q_heads * s->dim * 2,
		.pool_bytes = pool_bytes,
		.page_bytes = page_bytes,
	};
}

/* ---- on the device -------------------------------------------------------------------------- */

/* Nothing of it is there before: what is not written shows. */
static void run(const struct device_estimate *e, size_t n_mass, float *ret_mass)
{
	check(cudaMemset(e->scratch, 0xff, device_estimate_bytes(e)));
	check(cudaMemset(e->mass, 0xff, n_mass * sizeof(float)));
	check((cudaError_t)device_estimate(e, NULL));
	check(cudaDeviceSynchronize());
	check(cudaMemcpy(ret_mass, e->mass, n_mass * sizeof(float), cudaMemcpyDeviceToHost));
}

static void run_twice(struct world *w, size_t n_mass, float *ret_mass)
{
	struct device_estimate e = estimate_of(&w->s, w->head_bytes, w->pool_bytes);
	float *again = zeroed(n_mass, sizeof(*again));
	void *pool = upload(w->pool, w->pool_bytes), *scratch, *mass;
	void *q = upload(w->q_raw, (size_t)w->s.n_q * e.q_stride);
	void *windows = upload(w->windows, w->n_windows * sizeof(*w->windows));
	void *lists = upload(w->lists, (size_t)w->n_lists * ESTIMATE_WINDOW_TOKENS * 4);

	check(cudaMalloc(&scratch, device_estimate_bytes(&e)));
	check(cudaMalloc(&mass, n_mass * sizeof(float)));
	e.pool = (uintptr_t)pool;
	e.q = (uintptr_t)q;
	e.windows = windows;
	e.lists = lists;
	e.scratch = scratch;
	e.mass = mass;
	run(&e, n_mass, ret_mass);
	run(&e, n_mass, again);
	assert_memory_equal(ret_mass, again, n_mass * sizeof(*again));
	free(again);
	for (uint32_t i = 0; i < 6; i++)
		check(cudaFree((void *[]){pool, q, windows, lists, scratch, mass}[i]));
}

static void check_shape(const struct shape *s, struct oracle_random *random)
{
	const struct estimate_shape of = {s->n_q_heads, s->n_kv_heads,	 s->dim,
					  s->stride,	s->block_tokens, 1 / sqrt(s->dim)};
	double *want, difference = 0, sum = 0;
	struct world w;
	float *got;

	world_init(&w, s, random);
	const struct estimate_input input = {
		.q = w.q, .k = w.k, .n_q = s->n_q, .q_pos = s->q_pos, .n_k = w.n_k};
	size_t n = (size_t)s->n_kv_heads * estimate_n_blocks(s->n_q, s->block_tokens) *
		   estimate_n_blocks(w.n_k, s->block_tokens);
	want = zeroed(n, sizeof(*want));
	got = zeroed(n, sizeof(*got));
	assert_int_equal(estimate_blocks(&of, &input, want), 0);
	run_twice(&w, n, got);
	for (size_t i = 0; i < n; i++) {
		difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		sum += want[i] * want[i];
	}
	if (!(sqrt(difference / sum) <= BOUND))
		fail_msg("dim %u, %u/%u heads, stride %u, block %u, %u queries at %u, pages of %u: "
			 "%g off",
			 s->dim, s->n_q_heads, s->n_kv_heads, s->stride, s->block_tokens, s->n_q,
			 s->q_pos, s->page_tokens, sqrt(difference / sum));
	free(want);
	free(got);
	world_done(&w);
}

static void test_masses_are_those_of_the_twin(void **state)
{
	static const struct shape shapes[] = {
		{128, 1, 1, 8, 128, 256, 0, 32, 0, WORK_FP16},
		{128, 2, 2, 8, 64, 512, 2560, 32, 0, WORK_FP16},
		{128, 4, 2, 8, 256, 500, 1016, 32, 20, WORK_BF16},
		{128, 8, 2, 8, 1024, 777, 3000, 64, 30, WORK_FP16},
		{64, 4, 1, 8, 128, 333, 1000, 32, 30, WORK_FP16},
		{256, 2, 2, 8, 128, 130, 520, 16, 10, WORK_BF16},
		{96, 4, 2, 8, 256, 500, 1016, 32, 20, WORK_FP16},
		{96, 2, 1, 16, 128, 333, 1008, 64, 0, WORK_BF16},
		{192, 2, 2, 8, 128, 300, 520, 32, 10, WORK_BF16},
		{192, 4, 1, 16, 512, 600, 2048, 16, 0, WORK_FP16},
		{128, 4, 2, 16, 128, 600, 2048, 32, 20, WORK_FP16},
		{128, 3, 3, 16, 512, 1000, 1600, 64, 0, WORK_BF16},
		{64, 2, 1, 16, 4096, 100, 5008, 16, 5, WORK_FP16},
		{256, 4, 1, 8, 4096, 9, 8, 32, 0, WORK_FP16},
		{128, 2, 1, 8, 2048, 2100, 4096, 32, 3, WORK_FP16},
	};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		check_shape(&shapes[i], &random);
}

static void test_pages_side_by_side_too(void **state)
{
	static const struct shape shapes[] = {
		{128, 2, 1, 8, 128, 512, 4096, 32, 0, WORK_FP16, true},
		{128, 2, 2, 8, 256, 512, 4096, 64, 2, WORK_BF16, true},
		{128, 1, 1, 16, 128, 512, 8192, 32, 1, WORK_FP16, true},
		{64, 2, 1, 16, 128, 512, 8192, 64, 0, WORK_FP16, true},
		{256, 2, 1, 8, 1024, 256, 4096, 32, 1, WORK_FP16, true},
		{96, 2, 1, 8, 128, 512, 4096, 32, 1, WORK_FP16, true},
		{192, 2, 1, 8, 256, 512, 4096, 64, 1, WORK_BF16, true},
		{128, 1, 1, 8, 128, 256, 2048, 16, 0, WORK_FP16, true},
	};
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		check_shape(&shapes[i], &random);
}

static void test_what_cannot_be_done_takes_no_scratch(void **state)
{
	struct shape s = {128, 2, 1, 8, 128, 256, 0, 32, 0, WORK_FP16};
	struct device_estimate e = estimate_of(&s, 1, 1);

	(void)state;
	assert_true(device_estimate_bytes(&e) > 0);
	e.stride = 12;
	assert_int_equal(device_estimate_bytes(&e), 0);
	e.stride = 16;
	e.block_tokens = 64;
	assert_int_equal(device_estimate_bytes(&e), 0);
	e.block_tokens = 384;
	assert_int_equal(device_estimate_bytes(&e), 0);
	e.block_tokens = 128;
	e.q_pos = 8;
	assert_int_equal(device_estimate_bytes(&e), 0);
}

/* ---- time ----------------------------------------------------------------------------------- */

#define TIME_POOL (UINT64_C(4) << 30)
#define TIME_REPS 15

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

static float median_ms(const struct device_estimate *e)
{
	cudaEvent_t begin, end;
	float ms[TIME_REPS];

	check(cudaEventCreate(&begin));
	check(cudaEventCreate(&end));
	for (int i = -2; i < TIME_REPS; i++) {
		check(cudaEventRecord(begin, NULL));
		check((cudaError_t)device_estimate(e, NULL));
		check(cudaEventRecord(end, NULL));
		check(cudaEventSynchronize(end));
		check(cudaEventElapsedTime(&ms[i < 0 ? 0 : i], begin, end));
	}
	check(cudaEventDestroy(begin));
	check(cudaEventDestroy(end));
	qsort(ms, TIME_REPS, sizeof(*ms), compare);
	return ms[TIME_REPS / 2];
}

/* A pool of random numbers, of which one extent is made here and the rest are its copies. */
static void *random_memory(struct oracle_random *random, uint64_t bytes)
{
	float *values = zeroed(EXTENT_BYTES / 2, sizeof(*values));
	char *raw = zeroed(EXTENT_BYTES, 1), *to;

	for (size_t i = 0; i < EXTENT_BYTES / 2; i++)
		values[i] = oracle_normal(random);
	oracle_encode(WORK_FP16, raw, values, EXTENT_BYTES / 2);
	check(cudaMalloc((void **)&to, bytes));
	for (uint64_t at = 0; at < bytes; at += EXTENT_BYTES)
		check(cudaMemcpy(to + at, raw, EXTENT_BYTES, cudaMemcpyHostToDevice));
	free(values);
	free(raw);
	return to;
}

static void time_shape(const struct shape *s, struct oracle_random *random, void *pool, void *q,
		       void *scratch)
{
	uint64_t head_bytes = (uint64_t)s->page_tokens * 4 * s->dim;
	uint64_t page_bytes = head_bytes * s->n_kv_heads * LAYERS;
	struct device_estimate e = estimate_of(s, head_bytes, TIME_POOL);
	uint32_t n = e.n_k / ESTIMATE_WINDOW_TOKENS, *windows = zeroed(n, sizeof(*windows));
	void *mass;

	for (uint32_t i = 0; i < n; i++)
		windows[i] =
			(s->in_order ? i
				     : oracle_below(random, (uint32_t)(TIME_POOL / page_bytes))) *
			(uint32_t)(page_bytes / (32 * s->dim));
	void *on_device = upload(windows, n * sizeof(*windows));
	check(cudaMalloc(&mass, 64u << 20));
	e.pool = (uintptr_t)pool;
	e.q = (uintptr_t)q;
	e.windows = e.lists = on_device;
	e.scratch = scratch;
	e.mass = mass;
	float ms = median_ms(&e);
	printf("%s dim %u, %u/%u heads, stride %2u, %u queries, %6u keys, block %4u: %.3f ms, %.0f "
	       "TFLOP/s\n",
	       s->in_order ? "in order," : "anywhere,", s->dim, s->n_q_heads, s->n_kv_heads,
	       s->stride, s->n_q, e.n_k, s->block_tokens, ms,
	       2e-9 * s->n_q_heads * s->n_q / s->stride * e.n_k * s->dim / ms);
	check(cudaFree(mass));
	check(cudaFree(on_device));
	free(windows);
}

static void test_times(void **state)
{
	static const uint32_t lengths[] = {16384, 65536, 131072},
			      blocks[] = {128, 512, 1024, 2048, 4096};
	struct oracle_random random = oracle_seed(__func__);
	struct shape s = {128, 32, 32, 8, 1024, 4096, 0, 32, 0, WORK_FP16};
	void *pool = random_memory(&random, TIME_POOL), *q = random_memory(&random, 64u << 20);
	void *scratch;

	(void)state;
	check(cudaMalloc(&scratch, 1u << 30));
	for (uint32_t i = 0; i < 6; i++)
		for (uint32_t j = 0; j < 5; j++) {
			s.in_order = i % 2;
			s.q_pos = lengths[i / 2] - s.n_q;
			s.block_tokens = blocks[j];
			time_shape(&s, &random, pool, q, scratch);
		}
	s.q_pos = 65536 - s.n_q;
	s.block_tokens = 1024;
	s.stride = 16;
	time_shape(&s, &random, pool, q, scratch);
	s.stride = 8;
	s.n_kv_heads = 8;
	time_shape(&s, &random, pool, q, scratch);
	check(cudaFree(scratch));
	check(cudaFree(pool));
	check(cudaFree(q));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masses_are_those_of_the_twin),
		cmocka_unit_test(test_pages_side_by_side_too),
		cmocka_unit_test(test_what_cannot_be_done_takes_no_scratch),
	};
	const struct CMUnitTest times[] = {cmocka_unit_test(test_times)};
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		printf("no device to estimate on\n");
		return SKIPPED;
	}
	if (argc > 1 && strcmp(argv[1], "time") == 0)
		return cmocka_run_group_tests(times, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
