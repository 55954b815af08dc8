/* tall_cut_test.c - how gates are cut into tall tiles: all blocks are busy, and stages fit. */
#include "proto/arith.h"
#include "kernels/cuda/program/tall.h"
#include "kernels/cuda/program/tall_cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BLOCKS 132u
#define INPUTS_BYTES 128u /* of an output or a row in a step */

static void check(uint32_t n_out, uint32_t n_blocks)
{
	uint32_t height = tall_cut_height(n_out, n_blocks), n_tiles = ceil_div(n_out, height);

	assert_true(height > 0 && height % 8 == 0 && 2 * height <= TALL_TILE);
	/* no more rounds than the tallest tiles take */
	assert_true(ceil_div(n_tiles, n_blocks) <= ceil_div(n_out, n_blocks * (TALL_TILE / 2)));
}

static void tiles_are_as_few_as_keep_all_blocks_busy(void **state)
{
	(void)state;
	srand(11);
	for (uint32_t i = 0; i < 5000; i++)
		check(8 * (1 + rand() % 4000), 1 + rand() % 200);
	assert_int_equal(tall_cut_height(14336, BLOCKS), 112);
	assert_int_equal(tall_cut_height(28672, BLOCKS), 112);
}

static void rows_are_multiplied_as_no_fewer(void **state)
{
	(void)state;
	for (uint32_t n = TALL_ROWS_LEAST; n <= TALL_ROWS_MOST; n++) {
		assert_true(tall_cut_rows(n) >= n && tall_cut_rows(n) < n + 32);
		assert_int_equal(tall_cut_rows(n) % 16, 0);
		assert_true(tall_cut_rows(n) <= TALL_ROWS_MOST);
	}
}

/* In the worst case, too, three are under way while one is multiplied. */
static void stages_of_both_find_room(void **state)
{
	const uint32_t bytes = 226 << 10;

	(void)state;
	for (uint32_t rows = 96; rows <= 160; rows += 16)
		for (uint32_t outputs = 8; outputs <= 256; outputs += 8) {
			uint32_t of_rows, of_weights;

			tall_cut_stages(bytes, rows * INPUTS_BYTES, outputs * INPUTS_BYTES,
					&of_rows, &of_weights);
			assert_true(of_rows >= 4 && of_rows <= TALL_STAGES_MOST);
			assert_true(of_weights >= of_rows && of_weights <= TALL_STAGES_MOST);
			assert_true((of_rows * rows + of_weights * outputs) * INPUTS_BYTES <=
				    bytes);
		}
}

static void large_matrices_and_small_ones_pay(void **state)
{
	(void)state;
	assert_true(tall_cut_pays(14336, 4096) && tall_cut_pays(200, 512));
	assert_false(tall_cut_pays(4096, 4096));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tiles_are_as_few_as_keep_all_blocks_busy),
		cmocka_unit_test(rows_are_multiplied_as_no_fewer),
		cmocka_unit_test(stages_of_both_find_room),
		cmocka_unit_test(large_matrices_and_small_ones_pay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
