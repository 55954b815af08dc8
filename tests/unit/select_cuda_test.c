/*
 * select_cuda_test.c - what the device chooses by masses against what the processor does: rows of
 * every length, masses alike, equal, none at all, and some that are no numbers. Without a device
 * the program says so and exits with 77.
 */
#include "kernels/cuda/sparse/select.h"
#include "kernels/plan/select.h"
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
#define HEADS 3u

struct world {
	struct select_config config;
	struct select_chunk chunk;
	uint32_t n_rows, n_words;
	float *mass; /* owned */
	uint64_t *want; /* owned */
	struct select_shares shares;
	struct device_select on;
};

static void check(cudaError_t r)
{
	if (r != cudaSuccess)
		fail_msg("%s", cudaGetErrorString(r));
}

enum kind { KIND_ALIKE, KIND_WIDE, KIND_EQUAL, KIND_ZERO, KIND_NAN, KINDS };

/* Equal ones are of few values, whose sums are exact in any order. */
static float mass_of(struct oracle_random *random, enum kind kind)
{
	float u = (float)oracle_below(random, 1u << 20) / (1u << 20);

	if (kind == KIND_ALIKE)
		return 0.01f + 0.001f * u;
	if (kind == KIND_WIDE)
		return expf(-30 * u);
	if (kind == KIND_EQUAL)
		return (float)oracle_below(random, 3) / 64;
	return kind == KIND_NAN && oracle_below(random, 8) == 0 ? NAN : 0;
}

static void world_make(struct world *w, struct oracle_random *random, enum kind kind)
{
	static const double taus[] = {1e-9, 0.25, 0.5, 0.75, 0.9, 0.99, 1};
	uint32_t block = 64u << oracle_below(random, 2), n_k = 1 + oracle_below(random, 200000);
	uint32_t n = 1 + oracle_below(random, n_k < 700 ? n_k : 700);

	*w = (struct world){
		.config = {taus[oracle_below(random, 7)], oracle_below(random, 5),
			   oracle_below(random, 5)},
		.chunk = {block, n_k - n, n, oracle_below(random, n < 8 ? n : 8),
			  ceil_div(n_k, block)},
	};
	w->n_rows = HEADS * select_n_ranges(&w->chunk);
	w->n_words = select_n_words(w->chunk.n_blocks);
	w->mass = malloc((size_t)w->n_rows * w->chunk.n_blocks * sizeof(*w->mass));
	w->want = malloc((size_t)w->n_rows * w->n_words * sizeof(*w->want));
	assert_true(w->mass && w->want);
	for (size_t i = 0; i < (size_t)w->n_rows * w->chunk.n_blocks; i++)
		w->mass[i] = mass_of(random, kind);
	for (uint32_t head = 0; head < HEADS; head++) {
		size_t row = (size_t)head * w->n_rows / HEADS;
		assert_int_equal(select_chunk(&w->config, &w->chunk,
					      w->mass + row * w->chunk.n_blocks,
					      w->want + row * w->n_words, &w->shares),
				 0);
	}
}

static void world_run(struct world *w)
{
	size_t bytes = (size_t)w->n_rows * w->chunk.n_blocks * sizeof(*w->mass);
	void *mass;

	check(cudaMalloc(&mass, bytes));
	check(cudaMemcpy(mass, w->mass, bytes, cudaMemcpyHostToDevice));
	w->on = (struct device_select){
		.mass = mass,
		.tau = w->config.tau,
		.n_rows = w->n_rows,
		.n_ranges = w->n_rows / HEADS,
		.n_blocks = w->chunk.n_blocks,
		.n_words = w->n_words,
		.sink_blocks = w->config.sink_blocks,
		.recent_blocks = w->config.recent_blocks,
		.block_tokens = w->chunk.block_tokens,
		.pos = w->chunk.pos,
		.n = w->chunk.n,
		.skip = w->chunk.skip,
	};
	check(cudaMallocHost((void **)&w->on.kept, w->n_rows * w->n_words * sizeof(uint64_t)));
	check(cudaMallocHost((void **)&w->on.selected, w->n_rows * sizeof(*w->on.selected)));
	memset(w->on.kept, 0x5a, w->n_rows * w->n_words * sizeof(uint64_t));
	check(device_select(&w->on, NULL));
	check(cudaDeviceSynchronize());
	cudaFree(mass);
}

static void world_done(struct world *w)
{
	cudaFreeHost(w->on.kept);
	cudaFreeHost(w->on.selected);
	free(w->mass);
	free(w->want);
}

static bool near(double a, double b)
{
	return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * fabs(b);
}

static void compare(struct oracle_random *random, enum kind kind)
{
	struct select_shares got = {0};
	struct world w;

	world_make(&w, random, kind);
	world_run(&w);
	for (uint32_t i = 0; i < w.n_rows; i++) {
		const struct device_selected *at = &w.on.selected[i];

		got.attended += (double)at->n_queries * at->n_kept;
		got.visible += (double)at->n_queries * at->n_seen;
		got.kept_mass += at->kept_mass;
		got.total_mass += at->total_mass;
	}
	if (memcmp(w.on.kept, w.want, w.n_rows * w.n_words * sizeof(*w.want)) != 0)
		fail_msg("kind %d, %u blocks of %u, tau %g: another choice", kind, w.chunk.n_blocks,
			 w.chunk.block_tokens, w.config.tau);
	assert_true(got.attended == w.shares.attended && got.visible == w.shares.visible);
	assert_true(near(got.total_mass, w.shares.total_mass));
	assert_true(near(got.kept_mass, w.shares.kept_mass));
	world_done(&w);
}

static void choices_are_the_processors(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (enum kind kind = 0; kind < KINDS; kind++)
		for (uint32_t i = 0; i < 40; i++)
			compare(&random, kind);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_the_processors)};
	int n;

	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		printf("no CUDA device\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
