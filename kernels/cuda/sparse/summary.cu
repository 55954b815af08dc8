/*
 * summary.cu - mean keys of KV blocks in the pool.
 *
 * Grid: a warp for each mean and KV head, whose lanes have 8 values each. A key that is not a
 * number makes its mean none.
 */
#include "summary.h"
#include "kernels/cuda/device/halves.cuh"
#include "proto/arith.h"

#include <cuda_runtime_api.h>

#define MEAN_WARPS 8u

template <typename TYPE>
__global__ void __launch_bounds__(MEAN_WARPS * 32)
	mean_kernel(const __grid_constant__ struct device_means m)
{
	uint64_t warp = (uint64_t)blockIdx.x * MEAN_WARPS + threadIdx.x / 32;
	uint32_t chunk = threadIdx.x % 32, head = warp % m.n_heads;
	float sum[8] = {};

	if (warp >= (uint64_t)m.n * m.n_heads || chunk >= m.head_dim / 8)
		return;
	struct device_mean at = m.at[warp / m.n_heads];
	const char *kv_block = m.pool + (uint64_t)at.source * KV_SOURCE_BYTES + head * m.head_bytes;

	for (uint32_t row = at.first; row < at.end; row++) {
		uint4 v = *(const uint4 *)(kv_block + kv_chunk_offset(m.head_dim, row, chunk));
		const TYPE *values = (const TYPE *)&v;

#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			sum[i] += value_of(values[i]);
	}
	float share = 1.0f / (float)(at.end - at.first);
	uint4 out;
	TYPE *values = (TYPE *)&out;

#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		values[i] = type_of<TYPE>(sum[i] * share);
	*(uint4 *)(m.to + at.kv_block * m.stride + (uint64_t)head * m.head_dim * 2 + chunk * 16) =
		out;
}

extern "C" int device_means(const struct device_means *means, device_stream stream)
{
	uint64_t warps = (uint64_t)means->n * means->n_heads;
	uint32_t n_blocks = (uint32_t)ceil_div_u64(warps, MEAN_WARPS);

	if (means->bf16)
		mean_kernel<__nv_bfloat16><<<n_blocks, MEAN_WARPS * 32, 0, stream>>>(*means);
	else
		mean_kernel<__half><<<n_blocks, MEAN_WARPS * 32, 0, stream>>>(*means);
	return cudaGetLastError();
}
