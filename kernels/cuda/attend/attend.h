/*
 * attend.h - attention over a schedule (format.h), and the merge of its partials.
 */
#ifndef COPPICE_CUDA_ATTEND_H
#define COPPICE_CUDA_ATTEND_H

#include "proto/must_check.h"
#include "clocks.h"
#include "kernels/cuda/device/format.h"
#include "kernels/cuda/device/launch.h"

struct device_attend {
	struct device_shape shape;
	const struct device_work_tile *work_tiles;
	const struct device_kv_tile *kv_tiles;
	/* [work tile][DEVICE_FIRST_KV_TILES], once more: one miss less on the way to them */
	const struct device_source *firsts;
	const struct device_source *sources;
	const uint32_t *dests;
	const struct device_merge *merges;
	const struct device_row *rows;
	const char *pool; /* at the layer */
	/* [partial][n_kv_heads][row_heads][head_dim], times sum */
	float *part_o;
	float *part_stats; /* [partial][n_kv_heads][row_heads][max, sum] */
	/* [2]: entries drawn beyond the first of each block, blocks that are done; 0 between
	 * launches */
	uint32_t *ticket;
	uint32_t n_work_tiles;
	uint32_t n_kv_tiles, n_dests, n_rows;
	uint32_t n_merges;
	uint32_t merge_warps_log2; /* that share a merge: 0 or 2 */
	uint32_t patched; /* work tiles may have been, by the launch before */
	uint32_t n_blocks;
	/* each KV head has so many of its own, of n_work_tiles; 0: all have the same */
	uint32_t head_work_tiles;
	uint32_t first_head; /* of those that do */
	uint32_t bounded; /* the kernels are those of rows with a first position */
	uint32_t ahead; /* what is launched behind it may come before it has ended */
	/* What device_attend itself makes of these: a block that begins should divide nothing. */
	uint32_t n_entries;
	uint32_t entry_divisor; /* head_work_tiles, or else n_kv_heads */
	uint32_t entry_inverse; /* 2^32 / entry_divisor, rounded down */
	uint32_t heads_inverse; /* 2^16 / shape.row_heads + 1: right for the rows of a block */
#ifdef COPPICE_CLOCKS
	struct device_clocks *clocks; /* NULL: nobody asks */
#endif
};

/* Which of the kernels that compute attention. */
struct device_kernel {
	uint32_t head_dim;
	bool bf16;
	bool bounded; /* rows have a first position that they see */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Each a cudaError_t as int: 0 is success. The first two start work and do not wait. */
MUST_CHECK int device_attend(const struct device_attend *attend, struct launch_to to);
MUST_CHECK int device_merge(const struct device_attend *attend, struct launch_to to);
/* Readies the kernel and its merge. Blocks. */
MUST_CHECK int device_attend_init(const struct device_kernel *kernel);

#ifdef __cplusplus
}
#endif

#endif
