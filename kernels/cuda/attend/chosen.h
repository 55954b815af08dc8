/*
 * chosen.h - prefill of some blocks of a path, other ones for each KV head: the schedule (format.h)
 * is made on the device, from lists of blocks. A head has work tiles of its own, each a tile of the
 * query's rows with all that these see:
 *
 *      blocks of 4 windows   | 0 1 2 3 | - - - - | 8 9 10 11 | 12 ...   a window is 32 tokens
 *      a work tile's KV tiles  0 1 2 3   8 9 10 11 | 12 |               a window each: wide tiles
 *                                                                       first, then those that
 *                                                                       some rows see in part
 *
 * so that nothing is merged, and the processor has next to nothing to do.
 */
#ifndef COPPICE_CUDA_CHOSEN_H
#define COPPICE_CUDA_CHOSEN_H

#include "proto/must_check.h"
#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/launch.h"

/* A work tile as the processor knows it. */
struct device_choice {
	uint32_t row, n_rows; /* of the query's */
	uint32_t pos; /* the first row's */
	uint32_t kv_tile; /* its first */
	uint32_t n_plain; /* KV tiles that all rows see whole: the first ones */
	uint32_t n_kv_tiles;
	uint32_t block; /* the first of its blocks in the lists */
	uint32_t pad;
};

struct device_choose {
	const struct device_choice *choices; /* [n_work_tiles] */
	const uint32_t *blocks; /* lists, each in ascending order */
	const uint32_t *windows; /* of the path: sources of the first KV blocks */
	struct device_work_tile *work_tiles;
	struct device_source *firsts, *sources;
	struct device_kv_tile *kv_tiles;
	uint32_t *dests; /* [DEVICE_WORK_TILE_ROWS] */
	uint32_t n_work_tiles;
	uint32_t n_k; /* tokens of the path */
	uint32_t block_windows;
	uint32_t block_tokens; /* of a row block */
	uint32_t kv_block_sources; /* from a KV block to the next */
	uint32_t wide; /* there are wide tiles */
};

#ifdef __cplusplus
extern "C" {
#endif

MUST_CHECK int device_choose(const struct device_choose *choose, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
