/*
 * tall_cut.h - how gates of tall.h are cut into tiles. On the host, by arithmetic alone.
 */
#ifndef COPPICE_CUDA_TALL_CUT_H
#define COPPICE_CUDA_TALL_CUT_H

#include <stdbool.h>
#include <stdint.h>

#define TALL_TILE 256u /* gates and the values that they gate, some multiplied for nothing */
#define TALL_STAGES_MOST 16u

#ifdef __cplusplus
extern "C" {
#endif

/* What rows are multiplied as: a multiple of 16. */
uint32_t tall_cut_rows(uint32_t n_rows);
/* Are gates so many that tiles are not mostly empty, or weights so few that it is all one? */
bool tall_cut_pays(uint32_t n_out, uint32_t n_in);
/* Gates of a tile, a multiple of 8. */
uint32_t tall_cut_height(uint32_t n_out, uint32_t n_blocks);
/* Stages of rows and of weights that both find room. */
void tall_cut_stages(uint32_t bytes, uint32_t of_rows, uint32_t of_weights, uint32_t *ret_rows,
		     uint32_t *ret_weights);

#ifdef __cplusplus
}
#endif

#endif
