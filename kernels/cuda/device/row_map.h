/*
 * row_map.h - rows of a schedule and what they stand for.
 *
 * A row block has 16 rows of Q, whole rows of a schedule's. Up to 16 query heads of a KV head are
 * one of these, a token's; more are several rows of as many heads each as leave no row of a block
 * empty:
 *
 *      heads     4        16        24                  32           71
 *      rows      1 of 4   1 of 16   3 of 8              2 of 16      71 of 1
 *
 * Row n * i + k of a schedule is heads [k * heads, (k + 1) * heads) of row i of the list, for every
 * KV head. Partials, destinations and tails are of rows of the schedule.
 */
#ifndef COPPICE_CUDA_ROW_MAP_H
#define COPPICE_CUDA_ROW_MAP_H

#include "format.h"
#include "kernels/work.h"

struct row_map {
	uint32_t heads; /* query heads of a row */
	uint32_t n; /* rows of a token */
};

static inline struct row_map row_map_of(const struct work_shape *shape)
{
	uint32_t all = shape->n_q_heads / shape->n_kv_heads, heads = all;

	/* the largest power of two in both */
	if (all > DEVICE_BLOCK_ROWS)
		for (heads = DEVICE_BLOCK_ROWS; all % heads;)
			heads /= 2;
	return (struct row_map){heads, all / heads};
}

#endif
