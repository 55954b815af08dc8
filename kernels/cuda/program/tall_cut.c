/*
 * tall_cut.c - see tall_cut.h. As all tiles read all rows, there are to be as few as keep all
 * multiprocessors busy: in one round, or a few.
 */
#include "tall_cut.h"

#include "proto/arith.h"

#define STEP 8u /* gates */
#define GATES_LEAST 8192u /* half of a tile for each multiprocessor of a Hopper */
#define FEW_WEIGHTS (UINT64_C(1) << 21) /* of each half: done in a launch's time */

uint32_t tall_cut_rows(uint32_t n_rows)
{
	return n_rows <= 96 ? 96 : n_rows <= 128 ? 128 : n_rows <= 144 ? 144 : 160;
}

bool tall_cut_pays(uint32_t n_out, uint32_t n_in)
{
	return n_out >= GATES_LEAST || (uint64_t)n_out * n_in <= FEW_WEIGHTS;
}

uint32_t tall_cut_height(uint32_t n_out, uint32_t n_blocks)
{
	uint32_t n_rounds = ceil_div(n_out, n_blocks * (TALL_TILE / 2));

	return ceil_div(ceil_div(n_out, n_blocks * n_rounds), STEP) * STEP;
}

void tall_cut_stages(uint32_t bytes, uint32_t of_rows, uint32_t of_weights, uint32_t *ret_rows,
		     uint32_t *ret_weights)
{
	uint32_t n_rows = min_u32(bytes / (of_rows + of_weights), TALL_STAGES_MOST);

	*ret_rows = n_rows;
	*ret_weights = min_u32((bytes - n_rows * of_rows) / of_weights, TALL_STAGES_MOST);
}
