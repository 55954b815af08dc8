/*
 * merged.cuh - the merge of merge_state.h in the registers of a warp: each lane has some columns of
 * a row, all have its max and sum. Several parts are taken at once, so that the maximum is raised
 * once for all of them; in their order, so that bits repeat.
 */
#ifndef COPPICE_CUDA_MERGED_CUH
#define COPPICE_CUDA_MERGED_CUH

#include "ptx.cuh"

#define MERGE_EXP2 exp2_fast
#include "kernels/merge_state.h"

/* What a lane has of a row: N columns, relative to max as sum is. */
template <uint32_t N> struct merged {
	float o[N];
	struct merge_state state;
};

/* Of no keys. */
template <uint32_t N> __device__ inline struct merged<N> merged_nothing() {
	struct merged<N> nothing = {
	};

	nothing.state.max = -INFINITY;
	return nothing;
}

/* Adds the first n of these parts; column(k, j) is the lane's column j of part k. */
template <uint32_t N, uint32_t COUNT, typename COLUMN>
__device__ inline void merged_add(struct merged<N> &to, const struct merge_state (&parts)[COUNT],
				  uint32_t n, COLUMN column)
{
	float max = to.state.max, factor;

#pragma unroll
	for (uint32_t k = 0; k < COUNT; k++)
		max = k < n ? fmaxf(max, parts[k].max) : max;
	factor = merge_raise(&to.state, max);
#pragma unroll
	for (uint32_t j = 0; j < N; j++)
		to.o[j] *= factor;
#pragma unroll
	for (uint32_t k = 0; k < COUNT; k++) {
		if (k >= n)
			continue;
		float weight = merge_take(&to.state, &parts[k]);
#pragma unroll
		for (uint32_t j = 0; j < N; j++)
			to.o[j] += weight * column(k, j);
	}
}

#endif
