/*
 * select.h - which blocks of keys each block of rows attends to, chosen where their masses are:
 * what select_chunk (plan/select.h) does, for all KV heads at once.
 */
#ifndef COPPICE_CUDA_SELECT_H
#define COPPICE_CUDA_SELECT_H

#include "proto/must_check.h"
#include "kernels/cuda/device/format.h"

/* Of a row of masses. */
struct device_selected {
	double kept_mass, total_mass;
	uint32_t n_kept;
	uint32_t n_seen; /* blocks that stand before its last query, or with it */
	uint32_t n_queries;
	uint32_t pad;
};

struct device_select {
	const float *mass; /* [n_rows][n_blocks] */
	uint64_t *kept; /* [n_rows][n_words], bits; pinned memory, as that below */
	struct device_selected *selected; /* [n_rows] */
	double tau;
	uint32_t n_rows, n_ranges; /* a KV head has n_ranges rows */
	uint32_t n_blocks, n_words;
	uint32_t sink_blocks, recent_blocks;
	uint32_t block_tokens, pos, n, skip; /* as struct select_chunk has them */
};

#ifdef __cplusplus
extern "C" {
#endif

MUST_CHECK int device_select(const struct device_select *select,
			     device_stream stream); /* a cudaError_t */

#ifdef __cplusplus
}
#endif

#endif
