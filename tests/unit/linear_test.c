/*
 * linear_test.c - products cut into units, in any order: each output is what one product of all
 * has, bit for bit, whatever is cut.
 */
#include "kernels/cpu/linear.h"
#include "oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LONG_ROW (1u << 20) /* of which few outputs of many rows take long */

static float *random_floats(struct oracle_random *random, size_t n)
{
	float *x = malloc(n * sizeof(*x));

	assert_non_null(x);
	for (size_t i = 0; i < n; i++)
		x[i] = (float)oracle_below(random, 2001) / 1000 - 1;
	return x;
}

/* In any order. */
static void run_units(struct linear *l, struct oracle_random *random, uint32_t n_threads)
{
	uint32_t *order;

	linear_cut(l, n_threads);
	order = malloc(l->n_units * sizeof(*order));
	assert_non_null(order);
	for (uint32_t i = 0; i < l->n_units; i++) {
		uint32_t j = oracle_below(random, i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t i = 0; i < l->n_units; i++)
		linear_unit(l, oracle_below(random, n_threads), order[i]);
	free(order);
}

static struct linear linear_random(struct oracle_random *random, uint32_t n_rows, uint32_t n_in,
				   uint32_t n_out)
{
	return (struct linear){
		.rows = rows_ops_select(NULL),
		.x = random_floats(random, (size_t)n_rows * n_in),
		.x_stride = n_in,
		.y = calloc((size_t)n_rows * n_out, sizeof(float)),
		.y_stride = n_out,
		.n_rows = n_rows,
		.n_w = 1,
		.w = {{random_floats(random, (size_t)n_out * n_in), WORK_FP32, n_out, n_in}},
	};
}

static void check(struct linear *l, struct oracle_random *random)
{
	uint32_t n_threads = 1 + oracle_below(random, 3), n_out = l->w[0].n_out;
	float *whole = calloc((size_t)l->n_rows * n_out, sizeof(*whole));

	assert_true(l->y && whole);
	run_units(l, random, n_threads);
	l->rows->matmul(&(struct rows_product){.x = l->x,
					       .w = &l->w[0],
					       .y = whole,
					       .x_stride = l->x_stride,
					       .y_stride = n_out,
					       .n_rows = l->n_rows});
	assert_memory_equal(l->y, whole, (size_t)l->n_rows * n_out * sizeof(*whole));
	free(whole);
	free((void *)l->x);
	free(l->y);
	free((void *)l->w[0].data);
}

static void test_units_in_any_order_are_the_product(void **state)
{
	struct oracle_random random = oracle_seed(__func__);

	(void)state;
	for (uint32_t i = 0; i < 30; i++) {
		struct linear l = linear_random(&random, 1 + oracle_below(&random, 70),
						1 + oracle_below(&random, 300),
						1 + oracle_below(&random, 300));

		check(&l, &random);
	}
}

static void test_rows_are_cut_where_few_outputs_of_all_take_long(void **state)
{
	struct oracle_random random = oracle_seed(__func__);
	struct linear l = linear_random(&random, 50, LONG_ROW, 5);

	(void)state;
	linear_cut(&l, 2);
	assert_int_equal(l.unit_rows, 32);
	assert_int_equal(l.n_units, 4);
	check(&l, &random);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units_in_any_order_are_the_product),
		cmocka_unit_test(test_rows_are_cut_where_few_outputs_of_all_take_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
