/* sums.cuh - sums of a warp's or a block's values, in an order that its size alone decides. */
#ifndef COPPICE_CUDA_SUMS_CUH
#define COPPICE_CUDA_SUMS_CUH

#include <stdint.h>

template <typename NUMBER> __device__ inline NUMBER sum_of_warp(NUMBER x)
{
#pragma unroll
	for (uint32_t lanes = 16; lanes > 0; lanes /= 2)
		x += __shfl_xor_sync(~0u, x, lanes);
	return x;
}

/* All of the block's threads get it. */
template <uint32_t WARPS, typename NUMBER> __device__ inline NUMBER sum_of_block(NUMBER x)
{
	__shared__ NUMBER of_warps[WARPS];
	NUMBER sum = 0;

	x = sum_of_warp(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		of_warps[threadIdx.x / 32] = x;
	__syncthreads();
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		sum += of_warps[w];
	return sum;
}

#endif
