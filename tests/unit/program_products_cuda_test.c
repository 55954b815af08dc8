/*
 * program_products_cuda_test.c - products of programs on the GPU, each by the kernel that its rows
 * and outputs are for, against float64 and against the CPU's. argv[1] is the module; without a
 * device the program exits with 77. With PROGRAM_FAKE the device is played: that is
 * program_products_device_test.
 */
#include "program_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Of eight outputs: some rounds of a GPU's tiles. What is played has no rounds. */
#ifdef PROGRAM_FAKE
#define MANY 400
#else
#define MANY 2500
#endif

/* Tiles of outputs and rows that are not whole; of the last more than a GPU takes at a time. */
static void test_gates_of_many_rows_agree_with_float64(void **state)
{
	static const uint32_t n_rows[] = {128, 129, 256, 257, MACHINE_TOKENS};
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 1;
		want.side = want.biases = false;
		want.act = PROGRAM_SILU;
		want.intermediate = 8 * (oracle_below(&random, 60) + (i < 4 ? 2 : 900));
		gpu_check_new(&want, n_rows[i], &random, &errors);
	}
	program_errors_print(&errors);
}

/* Matrices of one round of tiles and of several, not whole; with and without biases. */
static void test_products_of_tall_tiles_agree_with_float64(void **state)
{
	static const uint32_t n_rows[] = {65, 96, 97, 128, 129, 144, 145, 160, 161};
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 9; i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 1;
		want.side = false;
		want.biases = i % 3 == 2;
		want.act = PROGRAM_SILU;
		want.hidden = 8 * (60 + oracle_below(&random, 20));
		want.intermediate = 8 * (20 + oracle_below(&random, i == 4 ? MANY : 200));
		gpu_check_new(&want, n_rows[i], &random, &errors);
	}
	program_errors_print(&errors);
}

/* Rows so few that all of theirs lies in shared memory, and so long that it does not. */
static void test_few_rows_of_long_inputs_agree_with_float64(void **state)
{
	static const uint32_t n_rows[] = {1, 8, 9, 12, 13, 16, 17, 64};
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 8; i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 1;
		want.side = false;
		want.intermediate = 8 * (1800 + oracle_below(&random, 100));
		gpu_check_new(&want, n_rows[i], &random, &errors);
	}
	program_errors_print(&errors);
}

#ifndef PROGRAM_FAKE
/* So many tiles that sums of as many parts as would be best have no room. */
static void test_gates_of_many_tiles_agree_with_float64(void **state)
{
	static const uint32_t n_rows[] = {17, 33};
	struct oracle_random random = oracle_seed(__func__);
	struct program_errors errors = {0};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct model_want want = gpu_want(&random);

		want.n_layers = 1;
		want.side = want.biases = false;
		want.act = PROGRAM_SILU;
		want.hidden = i == 0 ? 2240 : 2304;
		want.intermediate = 19072;
		gpu_check_new(&want, n_rows[i], &random, &errors);
	}
	program_errors_print(&errors);
}
#endif

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gates_of_many_rows_agree_with_float64),
		cmocka_unit_test(test_products_of_tall_tiles_agree_with_float64),
		cmocka_unit_test(test_few_rows_of_long_inputs_agree_with_float64),
#ifndef PROGRAM_FAKE
		cmocka_unit_test(test_gates_of_many_tiles_agree_with_float64),
#endif
	};
	int r = gpu_find(argc > 1 ? argv[1] : NULL);

	if (r)
		return r;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
