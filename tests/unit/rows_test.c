/*
 * rows_test.c - kernels/rows: the same bits in any company, the right values, on every instruction
 * set of this machine.
 */
#include "kernels/rows/rows.h"
#include "kernels/rows/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_ROWS 300

static const char *const isas[] = {"generic", "avx2", "avx512"};
static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

/* In [-1, 1). */
static float random_float(void)
{
	return (float)random_below(1 << 24) / (1 << 23) - 1;
}

static void set_seed(void)
{
	const char *given = getenv("COPPICE_SEED");
	random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
	print_message("seed %llu\n", (unsigned long long)random_state);
}

static float *random_floats(size_t n)
{
	float *values = malloc(n * sizeof(*values));
	assert_non_null(values);
	for (size_t i = 0; i < n; i++)
		values[i] = random_float();
	return values;
}

/* A random product; y holds max_rows rows. w is one byte off any alignment. */
struct problem {
	struct rows_matrix w;
	char *storage;
	float *x, *y, *weights;
};

static struct problem make(const struct rows_ops *ops, enum work_dtype dtype, uint32_t n_rows,
			   uint32_t n_out, uint32_t n_in)
{
	const size_t n = (size_t)n_out * n_in;
	struct problem p = {.storage = malloc(n * 4 + 1),
			    .x = random_floats((size_t)n_rows * n_in),
			    .y = calloc((size_t)n_rows * n_out, sizeof(float)),
			    .weights = random_floats(n)};
	assert_non_null(p.storage);
	assert_non_null(p.y);
	char *aligned = malloc(n * 4);
	assert_non_null(aligned);
	ops->narrow(aligned, dtype, p.weights, n);
	ops->widen(p.weights, aligned, dtype, n);
	memcpy(p.storage + 1, aligned, n * work_dtype_bytes(dtype));
	free(aligned);
	p.w = (struct rows_matrix){p.storage + 1, dtype, n_out, n_in};
	return p;
}

static void unmake(struct problem *p)
{
	free(p->storage);
	free(p->x);
	free(p->y);
	free(p->weights);
}

static void multiply(const struct rows_ops *ops, const struct problem *p, uint32_t row,
		     uint32_t n_rows, float *y)
{
	ops->matmul(&(struct rows_product){.x = p->x + (size_t)row * p->w.n_in,
					   .x_stride = p->w.n_in,
					   .w = &p->w,
					   .y = y,
					   .y_stride = p->w.n_out,
					   .n_rows = n_rows});
}

static void check_company(const struct rows_ops *ops, enum work_dtype dtype, uint32_t n_out,
			  uint32_t n_in)
{
	struct problem p = make(ops, dtype, MAX_ROWS, n_out, n_in);
	float *alone = calloc((size_t)MAX_ROWS * n_out, sizeof(float));
	assert_non_null(alone);
	for (uint32_t row = 0; row < MAX_ROWS; row++)
		multiply(ops, &p, row, 1, alone + (size_t)row * n_out);
	for (uint32_t n_rows = 1; n_rows <= MAX_ROWS; n_rows++) {
		const uint32_t first = random_below(MAX_ROWS - n_rows + 1);
		multiply(ops, &p, first, n_rows, p.y);
		assert_memory_equal(p.y, alone + (size_t)first * n_out,
				    (size_t)n_rows * n_out * sizeof(float));
	}
	free(alone);
	unmake(&p);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		for (int dtype = WORK_FP32; ops && dtype <= WORK_BF16; dtype++) {
			check_company(ops, dtype, 1 + random_below(12), 1 + random_below(70));
			check_company(ops, dtype, 7, 64);
		}
	}
}

/* Each of the n_in products and sums rounds once, by at most 2^-24 of what it rounds, and no
 * partial sum exceeds the sum of magnitudes: n_in * 2^-24 * magnitudes bounds the whole. */
static void check_values(const struct rows_ops *ops, enum work_dtype dtype)
{
	const uint32_t n_rows = 1 + random_below(40), n_out = 1 + random_below(40),
		       n_in = 1 + random_below(600);
	struct problem p = make(ops, dtype, n_rows, n_out, n_in);
	multiply(ops, &p, 0, n_rows, p.y);
	for (uint32_t r = 0; r < n_rows; r++)
		for (uint32_t o = 0; o < n_out; o++) {
			double sum = 0, magnitudes = 0;
			for (uint32_t k = 0; k < n_in; k++) {
				const double term = (double)p.x[(size_t)r * n_in + k] *
						    p.weights[(size_t)o * n_in + k];
				sum += term;
				magnitudes += fabs(term);
			}
			const double error = fabs(p.y[(size_t)r * n_out + o] - sum);
			assert_true(error <= (n_in + 1) * 0x1p-24 * magnitudes);
		}
	unmake(&p);
}

static void products_agree_with_double(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		for (int round = 0; ops && round < 30; round++)
			check_values(ops, round % 3);
	}
}

static void add_adds_to_what_is_there(void **state)
{
	(void)state;
	const struct rows_ops *ops = rows_ops_select(NULL);
	struct problem p = make(ops, WORK_BF16, 9, 5, 33);
	multiply(ops, &p, 0, 9, p.y);
	float *twice = malloc(9 * 5 * sizeof(float));
	assert_non_null(twice);
	memcpy(twice, p.y, 9 * 5 * sizeof(float));
	ops->matmul(&(struct rows_product){.x = p.x,
					   .x_stride = 33,
					   .w = &p.w,
					   .y = twice,
					   .y_stride = 5,
					   .n_rows = 9,
					   .add = true});
	for (int i = 0; i < 9 * 5; i++)
		assert_true(twice[i] == 2 * p.y[i]);
	free(twice);
	unmake(&p);
}

static void narrowing_rounds_to_nearest_even_and_keeps_the_odd_ones(void **state)
{
	(void)state;
	const float values[] = {1.0f,	       -2.5f,	 0x1.01p0f, 0x1.03p0f,
				0x1.010002p0f, INFINITY, -0.0f,	    NAN};
	const uint16_t bf16[] = {0x3f80, 0xc020, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0x8000};
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		if (!ops)
			continue;
		uint16_t narrow[8];
		float wide[8];
		ops->narrow(narrow, WORK_BF16, values, 8);
		assert_memory_equal(narrow, bf16, sizeof(bf16));
		ops->widen(wide, narrow, WORK_BF16, 8);
		assert_true(isnan(wide[7]));
		ops->narrow(narrow, WORK_FP16, values, 8);
		ops->widen(wide, narrow, WORK_FP16, 8);
		assert_true(wide[0] == 1 && wide[1] == -2.5f && isinf(wide[5]) && isnan(wide[7]));
	}
}

static double exact_act(enum rows_act act, double x)
{
	if (act == ROWS_SILU)
		return x / (1 + exp(-x));
	if (act == ROWS_GELU)
		return x / 2 * erfc(-x / sqrt(2));
	if (act == ROWS_GELU_TANH)
		return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	return x;
}

/* With silu: exp_series is good to 2 units in the last place, the division and two products to half
 * a one each: 4 * 2^-23. The others' exponents are sums and products of x, off by 4 * 2^-24 of
 * themselves; up to 64 of them are more than 1e-26 here, and exp is off by as much: 2^-16. */
static void check_gate(const struct rows_ops *ops, enum rows_act act)
{
	enum { N = 333 };
	const double bound = act == ROWS_SILU ? 4 * 0x1p-23 : 0x1p-16;
	float gate[N], up[N], result[N];
	for (int j = 0; j < N; j++) {
		gate[j] = random_float() * (j % 2 ? 80 : 3);
		up[j] = random_float();
	}
	memcpy(result, gate, sizeof(gate));
	ops->gate(act, result, up, N);
	for (int j = 0; j < N; j++) {
		const double exact = exact_act(act, (double)gate[j]) * (double)up[j];
		assert_true(fabs((double)result[j] - exact) <= fabs(exact) * bound + 1e-26);
	}
}

static void gates_agree_with_double(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		for (int act = ROWS_NO_ACT; ops && act <= ROWS_GELU_TANH; act++)
			check_gate(ops, act);
	}
}

/* Few values, so that many are alike, and some that are no numbers. */
static float random_logit(bool odd)
{
	static const float odds[] = {NAN, -INFINITY, -0.0f};
	if (odd && random_below(8) == 0)
		return odds[random_below(3)];
	return random_below(3) ? (float)random_below(40) - 20 : random_float() * 20;
}

static int by_logit(const void *a, const void *b)
{
	const struct rows_score *x = a, *y = b;
	if (x->logit != y->logit)
		return x->logit < y->logit ? 1 : -1;
	return x->id < y->id ? -1 : 1;
}

static void check_likeliest(const struct rows_ops *ops, uint32_t n, uint32_t n_top, bool odd)
{
	struct rows_score *sorted = calloc(n, sizeof(*sorted)), top[64];
	float *x = malloc(n * sizeof(*x));
	uint32_t n_sorted = 0, n_found;
	assert_non_null(sorted);
	assert_non_null(x);
	for (uint32_t i = 0; i < n; i++) {
		x[i] = random_logit(odd);
		if (!isnan(x[i]))
			sorted[n_sorted++] = (struct rows_score){i, x[i]};
	}
	qsort(sorted, n_sorted, sizeof(*sorted), by_logit);
	n_found = ops->likeliest(top, n_top, x, n);
	assert_int_equal(n_found, n_sorted < n_top ? n_sorted : n_top);
	for (uint32_t i = 0; i < n_found; i++) {
		assert_int_equal(top[i].id, sorted[i].id);
		assert_true(top[i].logit == sorted[i].logit);
	}
	free(sorted);
	free(x);
}

static void the_likeliest_are_those_of_a_sort_and_alike_the_lower_first(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		for (uint32_t round = 0; ops && round < 200; round++)
			check_likeliest(ops, 1 + random_below(round % 2 ? 100 : 3000),
					random_below(65), round % 3 == 0);
	}
}

/* Each term is off by exp_series' 2 units, as their sum then is at most, and by rounding x - max,
 * which is at most 40 here: 40 * 2^-24; sums of at most 64 terms in fp32 add 64 * 2^-24. */
static void the_log_of_the_sum_agrees_with_double(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		for (uint32_t round = 0; ops && round < 50; round++) {
			const uint32_t n = 1 + random_below(3000);
			float *x = random_floats(n);
			double sum = 0;
			for (uint32_t j = 0; j < n; j++) {
				x[j] *= 20;
				sum += exp((double)x[j]);
			}
			assert_true(fabs(ops->log_sum(x, n) - log(sum)) <= 108 * 0x1p-24);
			x[random_below(n)] = NAN;
			assert_true(isnan(ops->log_sum(x, n)));
			free(x);
		}
	}
}

/* Cosine and sine are rounded once each and once more by the factor, then come two products and a
 * sum: 4 * 2^-24 of the larger of what is turned, in each of two terms. */
static void heads_are_turned_by_double_angles_as_far_as_they_are_to_be(void **state)
{
	enum { DIM = 48, TURNED = 32, HEADS = 3 };
	double inv_freq[TURNED / 2];
	float heads[HEADS * DIM], turned[HEADS * DIM], rotations[TURNED];
	const struct rope_angles angles = {inv_freq, TURNED, 1.25f};
	const uint32_t position = 131071 - random_below(100);
	(void)state;
	for (int i = 0; i < TURNED / 2; i++)
		inv_freq[i] = pow(10000, -2.0 * i / TURNED);
	for (int i = 0; i < HEADS * DIM; i++)
		heads[i] = turned[i] = random_float();
	rope_set(&angles, position, rotations);
	rope_turn_heads(turned, HEADS, DIM, rotations, TURNED);
	for (int i = 0; i < HEADS * DIM; i++) {
		const int d = i % DIM, pair = d % (TURNED / 2);
		const double angle = position * inv_freq[pair];
		const double other = d < TURNED / 2 ? -(double)heads[i + TURNED / 2]
						    : (double)heads[i - TURNED / 2];
		const double exact = 1.25 * (cos(angle) * (double)heads[i] + sin(angle) * other);
		if (d < TURNED)
			assert_true(fabs((double)turned[i] - exact) <= 1.25 * 8 * 0x1p-24);
		else
			assert_true(turned[i] == heads[i]);
	}
}

/* The sum of n squares in fp32 is off by at most n / 16 + 16 roundings of 2^-24, halved by the
 * root. */
static void rmsnorm_agrees_with_double(void **state)
{
	(void)state;
	enum { N = 333 };
	for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
		const struct rows_ops *ops = rows_ops_select(isas[i]);
		float x[N], weight[N], y[N];
		double squares = 0;
		for (int j = 0; j < N; j++) {
			x[j] = random_float();
			weight[j] = random_float();
			squares += (double)x[j] * x[j];
		}
		if (!ops)
			continue;
		ops->rmsnorm(y, x, weight, N, 1e-5f);
		for (int j = 0; j < N; j++) {
			const double exact = x[j] * weight[j] / sqrt(squares / N + 1e-5);
			assert_true(fabs(y[j] - exact) <= fabs(exact) * 24 * 0x1p-24);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
		cmocka_unit_test(products_agree_with_double),
		cmocka_unit_test(add_adds_to_what_is_there),
		cmocka_unit_test(narrowing_rounds_to_nearest_even_and_keeps_the_odd_ones),
		cmocka_unit_test(gates_agree_with_double),
		cmocka_unit_test(the_likeliest_are_those_of_a_sort_and_alike_the_lower_first),
		cmocka_unit_test(the_log_of_the_sum_agrees_with_double),
		cmocka_unit_test(heads_are_turned_by_double_angles_as_far_as_they_are_to_be),
		cmocka_unit_test(rmsnorm_agrees_with_double),
	};
	set_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
