/*
 * fold.h - folds the tiles of an item, for one KV head, into the running softmax of a span of rows.
 *
 * A row here is one query head of one token: tokens [begin, end) of the list have (end - begin) x
 * group rows, token by token. Rows are computed in blocks, Q of a block packed as
 * [head_dim][VEC_BLOCK].
 */
#ifndef COPPICE_CPU_FOLD_H
#define COPPICE_CPU_FOLD_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "pool.h"
#include "vec.h"

#define FOLD_ROWS 384u /* rows that a thread folds at a time: their Q and O stay in its L2 */

/* One thread's memory. */
struct fold_state {
	float *q; /* owned: packed blocks */
	float *o; /* [FOLD_ROWS][head_dim] */
	float *sum; /* [FOLD_ROWS][VEC_LANES_MAX] */
	float *s; /* [VEC_BLOCK][WORK_TILE_TOKENS] scores, then weights */
	float *spill; /* as s: scores of which only some are wanted */
	float *max; /* [FOLD_ROWS] */
	float *line; /* [POOL_DIM_MAX] */
	uint64_t *mask; /* [FOLD_ROWS] keys of a tile that a row sees */
};

/* 0 or -ENOMEM. */
MUST_CHECK int fold_state_init(struct fold_state *state);
void fold_state_done(struct fold_state *state);

/* Rows of tokens [begin, end) of an item for some KV heads; fold_stride x n_heads is at most
 * FOLD_ROWS. */
struct fold {
	const struct vec *vec;
	const struct pool_pages *pages;
	const struct backend_job *job;
	const struct work_item *item;
	uint32_t head, n_heads; /* KV heads, taken one after the other within a tile */
	uint32_t begin, end;
};

/* Token rows that fit FOLD_ROWS. */
static inline uint32_t fold_tokens(uint32_t group)
{
	return FOLD_ROWS / group;
}

/* Rows from one KV head to the next in the state: n_rows, rounded up to whole blocks. */
uint32_t fold_stride(uint32_t group, uint32_t n_rows);

/* Leaves max (times log2 e), sums and unscaled outputs in state. */
void fold_run(const struct fold *f, struct fold_state *state);
/* Sum of a row over its lanes, in one order. */
float fold_sum(const struct fold_state *state, uint32_t row);

#endif
