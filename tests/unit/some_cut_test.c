/* some_cut_test.c - how products of some rows are cut: everything is there once, and fits. */
#include "proto/arith.h"
#include "kernels/cuda/program/few.h"
#include "kernels/cuda/program/some_cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BLOCKS 132u

static struct device_few few_of(uint32_t n_rows, uint32_t n_in, uint32_t n_out)
{
	return (struct device_few){.n_rows = n_rows, .n_in = n_in, .n_out = {n_out}};
}

static void check(const struct device_few *few, uint32_t n_blocks)
{
	struct some_cut cut = some_cut_find(few, n_blocks);
	uint32_t steps = ceil_div(few->n_in, SOME_INPUTS), n[3], all;

	assert_true(cut.height > 0 && cut.height % 8 == 0);
	assert_true(cut.height * (few->gated ? 2 : 1) <= SOME_HEIGHT_MOST);
	assert_true((cut.n_parts - 1) * cut.part_steps < steps);
	assert_true(cut.n_parts * cut.part_steps >= steps);
	all = some_cut_tiles(few, cut.height, n);
	assert_true(cut.n_parts == 1 || all <= SOME_COUNTERS);
	assert_in_range(some_cut_parts_bytes(few, &cut), 0, SOME_PARTS_BYTES);
	assert_int_equal(all, n[0] + n[1] + n[2]);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t there = few->gated && i > 0 ? 0 : few->n_out[i];

		assert_true(n[i] * cut.height >= there);
		assert_true(n[i] == 0 || (n[i] - 1) * cut.height < there);
	}
}

static void all_outputs_and_inputs_are_there_once(void **state)
{
	(void)state;
	srand(7);
	for (uint32_t i = 0; i < 2000; i++) {
		struct device_few few =
			few_of(1 + rand() % 64, 8 * (1 + rand() % 2000), 1 + rand() % 30000);

		few.gated = rand() % 2;
		if (few.gated) {
			few.n_out[1] = few.n_out[0];
		} else if (rand() % 2) {
			few.n_out[1] = rand() % 5000;
			few.n_out[2] = few.n_out[1];
		}
		check(&few, 1 + rand() % 200);
	}
}

static void check_gates(uint32_t n_in, uint32_t n_gates)
{
	static const uint32_t n_blocks[] = {78, 114, 132, 148};

	for (uint32_t rows = 1; rows <= 64; rows++)
		for (uint32_t i = 0; i < sizeof(n_blocks) / sizeof(n_blocks[0]); i++) {
			struct device_few few = few_of(rows, n_in, n_gates);

			few.n_out[1] = n_gates;
			few.gated = 1;
			check(&few, n_blocks[i]);
		}
}

/* Gates of Phi-4, Qwen3-32B, Seed-OSS, Mistral Large and Llama 70B, and a head of 256,000. */
static void sums_of_parts_have_room(void **state)
{
	(void)state;
	check_gates(2240, 19072);
	check_gates(5120, 17920);
	check_gates(5120, 25600);
	check_gates(5120, 27648);
	check_gates(12288, 28672);
	check_gates(8192, 28672);
	for (uint32_t rows = 1; rows <= 16; rows++) {
		struct device_few head = few_of(rows, 8192, 256000);

		check(&head, BLOCKS);
	}
}

/* What the busiest block reads, of what all would read had each the same. */
static double share(const struct device_few *few)
{
	double n_out = (double)few->n_out[0] + few->n_out[1] + few->n_out[2];

	return some_cut_find(few, BLOCKS).cost / (n_out * few->n_in * 2 / BLOCKS);
}

static void matrices_of_a_large_model_keep_all_blocks_busy(void **state)
{
	struct device_few qkv = few_of(64, 4096, 4096), gate = few_of(64, 4096, 14336);
	struct device_few down = few_of(64, 14336, 4096), head = few_of(64, 4096, 128256);

	(void)state;
	qkv.n_out[1] = qkv.n_out[2] = 1024;
	gate.n_out[1] = 14336;
	gate.gated = 1;
	assert_true(share(&qkv) < 1.65);
	assert_true(share(&gate) < 1.2);
	assert_true(share(&down) < 1.45);
	assert_true(share(&head) < 1.2);
}

static void outputs_that_are_few_are_cut_along_their_inputs(void **state)
{
	struct device_few down = few_of(16, 14336, 4096), one = few_of(16, 64, 4096);

	(void)state;
	assert_true(some_cut_find(&down, BLOCKS).n_parts > 1);
	assert_int_equal(some_cut_find(&one, BLOCKS).n_parts, 1);
}

/* A block has no more rows than it needs: of 8, 16, 32 or 64. */
static void rows_are_those_of_the_smallest_kernel_that_has_them(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 64; n++) {
		uint32_t rows = some_cut_rows(n);

		assert_true(rows >= n && (rows == 8 || rows / 2 < n));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_outputs_and_inputs_are_there_once),
		cmocka_unit_test(sums_of_parts_have_room),
		cmocka_unit_test(rows_are_those_of_the_smallest_kernel_that_has_them),
		cmocka_unit_test(matrices_of_a_large_model_keep_all_blocks_busy),
		cmocka_unit_test(outputs_that_are_few_are_cut_along_their_inputs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
