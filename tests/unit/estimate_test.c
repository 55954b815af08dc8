/*
 * estimate_test.c - estimates of blocks against the definition, their sums, and what is selected by
 * them.
 */
#include "oracle.h"

#include "estimate_model.h"
#include "kernels/plan/select.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_BLOCKS 4096u

struct chunk {
	struct estimate_shape shape;
	struct estimate_input input;
	float *q, *k; /* owned */
};

static float *normals(struct oracle_random *random, size_t n, float scale)
{
	float *values = malloc(n * sizeof(*values));

	assert_non_null(values);
	for (size_t i = 0; i < n; i++)
		values[i] = scale * oracle_normal(random);
	return values;
}

static void chunk_init(struct chunk *c, struct estimate_shape shape, uint32_t n_q, uint32_t q_pos,
		       struct oracle_random *random)
{
	uint32_t n_k = q_pos + n_q;

	*c = (struct chunk){.shape = shape};
	c->shape.scale = 1 / sqrt(shape.head_dim);
	c->q = normals(random, (size_t)n_q * shape.n_q_heads * shape.head_dim, 3);
	c->k = normals(random, (size_t)n_k * shape.n_kv_heads * shape.head_dim, 3);
	c->input = (struct estimate_input){
		.q = c->q, .k = c->k, .n_q = n_q, .q_pos = q_pos, .n_k = n_k};
}

static void chunk_done(struct chunk *c)
{
	free(c->q);
	free(c->k);
}

static double *estimate(const struct chunk *c, uint32_t block_tokens, uint32_t *ret_rows,
			uint32_t *ret_columns)
{
	struct estimate_shape shape = c->shape;

	shape.block_tokens = block_tokens;
	*ret_rows = estimate_n_blocks(c->input.n_q, block_tokens);
	*ret_columns = estimate_n_blocks(c->input.n_k, block_tokens);
	double *mass = malloc((size_t)shape.n_kv_heads * *ret_rows * *ret_columns * sizeof(*mass));
	assert_non_null(mass);
	assert_int_equal(estimate_blocks(&shape, &c->input, mass), 0);
	return mass;
}

/* The score of a square, pair by pair of tokens. */
static double square_score(const struct chunk *c, uint32_t row, uint32_t column, uint32_t head)
{
	const struct estimate_shape *s = &c->shape;
	uint32_t kv_head = head / (s->n_q_heads / s->n_kv_heads);
	double sum = 0;

	for (uint32_t i = row * s->stride; i < (row + 1) * s->stride && i < c->input.n_q; i++)
		for (uint32_t j = column * s->stride;
		     j < (column + 1) * s->stride && j < c->input.n_k; j++)
			for (uint32_t d = 0;
			     d < s->head_dim && (i + j) % s->stride == s->stride - 1; d++)
				sum += (double)c
					       ->q[((size_t)i * s->n_q_heads + head) * s->head_dim +
						   d] *
				       (double)c->k[((size_t)j * s->n_kv_heads + kv_head) *
							    s->head_dim +
						    d];
	return sum * s->scale / s->stride;
}

/* Mass of one block for one KV head. */
static double block_mass(const struct chunk *c, uint32_t kv_head, uint32_t block_row,
			 uint32_t block_column, uint32_t block_tokens)
{
	const struct estimate_shape *s = &c->shape;
	uint32_t group = s->n_q_heads / s->n_kv_heads;
	double mass = 0;

	for (uint32_t row = 0; row * s->stride < c->input.n_q; row++) {
		uint32_t last = c->input.q_pos + row * s->stride + s->stride - 1;
		for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
			double sum = 0, in_block = 0;
			if (row * s->stride / block_tokens != block_row)
				continue;
			for (uint32_t j = 0; j * s->stride < c->input.n_k && j * s->stride <= last;
			     j++) {
				double weight = exp(square_score(c, row, j, head));
				sum += weight;
				if (j * s->stride / block_tokens == block_column)
					in_block += weight;
			}
			mass += in_block / sum;
		}
	}
	return mass;
}

static void test_masses_are_those_of_the_definition(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 4,
				       .n_kv_heads = 2,
				       .head_dim = 16,
				       .stride = 8};
	struct chunk c;
	uint32_t rows, columns;

	(void)state;
	chunk_init(&c, shape, 50, 72, &random); /* neither whole blocks nor whole squares */
	double *mass = estimate(&c, 32, &rows, &columns);
	assert_int_equal(rows, 2);
	assert_int_equal(columns, 4);
	for (uint32_t i = 0; i < 2 * rows * columns; i++) {
		double expected =
			block_mass(&c, i / (rows * columns), i / columns % rows, i % columns, 32);
		assert_true(fabs(mass[i] - expected) <= 1e-12 * (1 + expected));
	}
	free(mass);
	chunk_done(&c);
}

static void test_each_row_of_squares_adds_one(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 6,
				       .n_kv_heads = 2,
				       .head_dim = 16,
				       .stride = 16};
	struct chunk c;
	uint32_t rows, columns;

	(void)state;
	chunk_init(&c, shape, 256, 128, &random);
	double *mass = estimate(&c, 64, &rows, &columns);
	for (uint32_t i = 0; i < 2 * rows; i++) {
		double sum = 0;
		for (uint32_t j = 0; j < columns; j++)
			sum += mass[i * columns + j];
		assert_true(fabs(sum - 3 * 64 / 16) < 1e-10);
	}
	free(mass);
	chunk_done(&c);
}

static void test_what_is_later_has_no_mass(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 1,
				       .n_kv_heads = 1,
				       .head_dim = 16,
				       .stride = 8};
	struct chunk c;
	uint32_t rows, columns;

	(void)state;
	chunk_init(&c, shape, 256, 64, &random);
	double *mass = estimate(&c, 64, &rows, &columns);
	for (uint32_t i = 0; i < rows; i++)
		for (uint32_t j = 0; j < columns; j++)
			assert_int_equal(mass[i * columns + j] > 0, j <= i + 1);
	free(mass);
	chunk_done(&c);
}

static void check_sums(struct oracle_random *random, uint32_t n_q, uint32_t q_pos, uint32_t fine,
		       uint32_t ratio)
{
	struct estimate_shape shape = {.n_q_heads = 4,
				       .n_kv_heads = 2,
				       .head_dim = 16,
				       .stride = 8};
	struct chunk c;
	uint32_t rows, columns, coarse_rows, coarse_columns;

	chunk_init(&c, shape, n_q, q_pos, random);
	double *small = estimate(&c, fine, &rows, &columns);
	double *coarse = estimate(&c, fine * ratio, &coarse_rows, &coarse_columns);
	double *sums = malloc(2u * coarse_rows * coarse_columns * sizeof(*sums));
	estimate_sum(small, 2, rows, columns, ratio, sums);
	for (uint32_t i = 0; i < 2 * coarse_rows * coarse_columns; i++)
		assert_true(fabs(sums[i] - coarse[i]) <= 1e-12 * coarse[i]);
	free(sums);
	free(coarse);
	free(small);
	chunk_done(&c);
}

static void test_sums_of_small_blocks_are_the_large_ones(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	check_sums(&random, 512, 1024, 64, 4);
	check_sums(&random, 500, 1016, 64, 4);
	check_sums(&random, 96, 0, 8, 3);
}

/* The sizes that are meant: blocks of 1,024 summed to 4,096. */
static void test_offload_blocks_are_sums_of_estimate_blocks(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	check_sums(&random, 1024, 7168, 1024, 4);
}

static void test_bad_shapes_are_refused(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 4,
				       .n_kv_heads = 2,
				       .head_dim = 16,
				       .stride = 8};
	struct chunk c;
	double mass[64];

	(void)state;
	chunk_init(&c, shape, 64, 64, &random);
	c.shape.block_tokens = 60;
	assert_int_equal(estimate_blocks(&c.shape, &c.input, mass), -EINVAL);
	c.shape.block_tokens = 64;
	c.shape.n_q_heads = 3;
	assert_int_equal(estimate_blocks(&c.shape, &c.input, mass), -EINVAL);
	c.shape.n_q_heads = 4;
	c.input.q_pos = 60;
	assert_int_equal(estimate_blocks(&c.shape, &c.input, mass), -EINVAL);
	chunk_done(&c);
}

/* Keys of one block point where all queries do. */
static void test_a_planted_block_is_found(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 2,
				       .n_kv_heads = 1,
				       .head_dim = 32,
				       .stride = 8};
	struct select_config config = {.tau = 0.9};
	struct select_result result;
	struct chunk c;
	uint64_t kept;
	uint32_t rows, columns;

	(void)state;
	chunk_init(&c, shape, 64, 960, &random);
	for (uint32_t i = 0; i < 64u * 2 * 32; i++)
		c.q[i] = 1;
	for (uint32_t i = 5 * 64 * 32; i < 6 * 64 * 32; i++)
		c.k[i] = 3;
	double *mass = estimate(&c, 64, &rows, &columns);
	assert_int_equal(select_blocks(&config, mass, columns, &kept, &result), 0);
	assert_int_equal(kept, 1u << 5);
	assert_int_equal(result.n_kept, 1);
	free(mass);
	chunk_done(&c);
}

/* Mass of attention that a choice by means has, of what it would have by the estimate itself. */
static void test_means_are_small_and_choose_much_the_same(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct estimate_shape shape = {.n_q_heads = 4,
				       .n_kv_heads = 1,
				       .head_dim = 64,
				       .stride = 8};
	struct select_config config = {.tau = 0.9, .sink_blocks = 1, .recent_blocks = 1};
	struct select_result full, by_means;
	struct chunk c;
	uint64_t kept[2];
	uint32_t rows, columns;
	double mass_of_choice = 0;

	(void)state;
	chunk_init(&c, shape, 128, 3968, &random);
	for (uint32_t i = 0; i < 4096u * 64; i++) /* some blocks lean towards the queries' mean */
		c.k[i] += i / (64 * 64) % 7 == 3 ? 3.0f : 0.0f;
	for (uint32_t i = 0; i < 128u * 4 * 64; i++)
		c.q[i] += 1;
	double *mass = estimate(&c, 64, &rows, &columns);
	assert_int_equal(select_blocks(&config, mass + columns, columns, kept, &full), 0);
	float *means = malloc(estimate_n_blocks(4096, 8) * 64 * sizeof(*means));
	estimate_means(&c.shape, c.k, 4096, means);
	struct chunk of_means = c;
	of_means.input.k = NULL;
	of_means.input.means = means;
	double *approximate = estimate(&of_means, 64, &rows, &columns);
	assert_int_equal(select_blocks(&config, approximate + columns, columns, kept, &by_means),
			 0);
	for (uint32_t i = 0; i < columns; i++)
		mass_of_choice += select_has(kept, i) ? mass[columns + i] : 0;
	printf("estimate keeps %u of %u blocks with %.4f of its mass; means keep %u with %.4f: "
	       "recall %.4f\n",
	       full.n_kept, columns, full.kept_mass / full.total_mass, by_means.n_kept,
	       mass_of_choice / full.total_mass, mass_of_choice / full.kept_mass);
	assert_true(mass_of_choice >= 0.8 * full.kept_mass);
	free(approximate);
	free(means);
	free(mass);
	chunk_done(&c);
}

static void test_the_heaviest_are_selected_until_it_is_enough(void **state)
{
	const double mass[] = {1, 5, 0, 3, 1, 8, 2, 0};
	struct select_config config = {.tau = 0.75};
	struct select_result result;
	uint64_t kept;

	(void)state;
	assert_int_equal(select_blocks(&config, mass, 8, &kept, &result), 0);
	assert_int_equal(kept, 1 << 5 | 1 << 1 | 1 << 3);
	assert_int_equal(result.n_kept, 3);
	assert_true(result.kept_mass == 16 && result.total_mass == 20);
	config.tau = 0.65;
	assert_int_equal(select_blocks(&config, mass, 8, &kept, &result), 0);
	assert_int_equal(kept, 1 << 5 | 1 << 1);
}

static void test_sink_and_recent_blocks_always_stay(void **state)
{
	const double mass[] = {1, 5, 0, 3, 1, 8, 2, 0};
	struct select_config config = {.tau = 0.1, .sink_blocks = 1, .recent_blocks = 2};
	struct select_result result;
	uint64_t kept;

	(void)state;
	assert_int_equal(select_blocks(&config, mass, 8, &kept, &result), 0);
	assert_int_equal(kept, 1 << 0 | 1 << 6 | 1 << 7);
	config.tau = 0.5;
	assert_int_equal(select_blocks(&config, mass, 8, &kept, &result), 0);
	assert_int_equal(kept, 1 << 0 | 1 << 6 | 1 << 7 | 1 << 5);
	config.sink_blocks = 100;
	assert_int_equal(select_blocks(&config, mass, 8, &kept, &result), 0);
	assert_int_equal(kept, 255);
}

static void test_tau_of_one_selects_everything(void **state)
{
	static double mass[MAX_BLOCKS];
	static uint64_t kept[MAX_BLOCKS / 64];
	struct select_config config = {.tau = 1};
	struct select_result result;

	(void)state;
	mass[77] = 1; /* the others' has vanished in rounding */
	assert_int_equal(select_blocks(&config, mass, 1000, kept, &result), 0);
	assert_int_equal(result.n_kept, 1000);
	for (uint32_t i = 0; i < 1000; i++)
		assert_true(select_has(kept, i));
	assert_int_equal(select_blocks(&config, mass, 0, kept, &result), 0);
	assert_int_equal(result.n_kept, 0);
}

/* A few that are often the same, any, or all nearly the same; sums are exact. */
static double some_mass(struct oracle_random *random, uint32_t kind)
{
	if (kind == 2)
		return 1 + ldexp(oracle_below(random, 999), -20);
	return ldexp(oracle_below(random, 8), kind == 1 ? -(int)oracle_below(random, 40) : 0);
}

static void test_no_selection_could_do_with_less(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	double mass[100], lightest;
	uint64_t kept[2];

	(void)state;
	for (uint32_t run = 0; run < 1000; run++) {
		struct select_config config = {.tau = oracle_below(&random, 1000) / 1000.0};
		struct select_result result;
		uint32_t n = 1 + oracle_below(&random, 100);
		for (uint32_t i = 0; i < n; i++)
			mass[i] = some_mass(&random, run % 3);
		assert_int_equal(select_blocks(&config, mass, n, kept, &result), 0);
		assert_true(result.kept_mass >= config.tau * result.total_mass);
		lightest = INFINITY;
		for (uint32_t i = 0; i < n; i++)
			if (select_has(kept, i))
				lightest = mass[i] < lightest ? mass[i] : lightest;
		for (uint32_t i = 0; i < n; i++)
			assert_true(select_has(kept, i) || mass[i] <= lightest);
		assert_true(result.n_kept == 0 ||
			    result.kept_mass - lightest < config.tau * result.total_mass);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_masses_are_those_of_the_definition),
		cmocka_unit_test(test_each_row_of_squares_adds_one),
		cmocka_unit_test(test_what_is_later_has_no_mass),
		cmocka_unit_test(test_sums_of_small_blocks_are_the_large_ones),
		cmocka_unit_test(test_offload_blocks_are_sums_of_estimate_blocks),
		cmocka_unit_test(test_bad_shapes_are_refused),
		cmocka_unit_test(test_a_planted_block_is_found),
		cmocka_unit_test(test_means_are_small_and_choose_much_the_same),
		cmocka_unit_test(test_the_heaviest_are_selected_until_it_is_enough),
		cmocka_unit_test(test_sink_and_recent_blocks_always_stay),
		cmocka_unit_test(test_tau_of_one_selects_everything),
		cmocka_unit_test(test_no_selection_could_do_with_less),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
