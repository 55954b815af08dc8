/*
 * estimate_means.cuh - the product where mean keys are all there is of the path: a square's row of
 * K is one vector, and so is that of Q, its tokens' mean.
 *
 * Grid: as many blocks as find room, each takes every so-manieth tile of 128 rows x 128 squares,
 * whose slabs are all in shared memory at once: a block waits while the others of its
 * multiprocessor multiply.
 */
#ifndef COPPICE_CUDA_ESTIMATE_MEANS_CUH
#define COPPICE_CUDA_ESTIMATE_MEANS_CUH

#include "estimate_narrow.cuh"
#include "kernels/cuda/device/halves.cuh"

#define MEANS_THREADS 256u

#if __CUDA_ARCH__ >= 800
/* A slab's rows of Q and means, the thread's share. */
__device__ inline void means_bring(const struct estimate_job &j, const struct estimate_tile &tile,
				   uint32_t slab, uint32_t stage)
{
	uint32_t chunk = threadIdx.x % 8,
		 at = tile.head * j.e.shape.head_dim * 2 + slab * SLAB_BYTES + chunk * 16;
	/* of the last slab there may be less */
	bool there = slab * SLAB_VALUES + chunk * KV_CHUNK_VALUES < j.e.shape.head_dim;

#pragma unroll
	for (uint32_t i = threadIdx.x / 8; i < NARROW_ROWS; i += MEANS_THREADS / 8) {
		uint32_t row = tile.rows + i, square = tile.column + i;
		bool q_there = row < j.m, k_there = square < j.n_columns && there;
		const uint4 *q =
			j.q +
			(((uint64_t)tile.head * j.m + (q_there ? row : 0)) * j.n_slabs + slab) * 8 +
			chunk;
		const char *k =
			(const char *)j.e.means + (k_there ? square : 0) * j.e.means_stride + at;

		copy_or_clear(stage + narrow_offset(i, chunk), q, q_there);
		copy_or_clear(stage + NARROW_Q_BYTES + narrow_offset(i, chunk), k, k_there);
	}
}

__device__ inline float half_of(uint32_t two, uint32_t i, bool bf16)
{
	uint16_t bits = (uint16_t)(two >> 16 * i);

	return bf16 ? value_of(*(const __nv_bfloat16 *)&bits) : value_of(*(const __half *)&bits);
}

/* 8 values of tokens [token, token + 8), those that there are: adds them up. */
__device__ inline void sum_queries(const struct estimate_job &j, uint32_t token, uint64_t at,
				   float (&sum)[8])
{
	for (uint32_t i = 0; i < KV_BLOCK_TOKENS && token + i < j.e.n_q; i++) {
		uint4 v = *(const uint4 *)(j.e.q + (token + i) * j.e.q_stride + at);
		const uint32_t *two = &v.x;

#pragma unroll
		for (uint32_t k = 0; k < 8; k++)
			sum[k] += half_of(two[k / 2], k % 2, j.e.shape.bf16);
	}
}
#endif

/* In place of Q's gathering: a thread for 16 bytes of a square's mean query. */
__global__ void __launch_bounds__(MEANS_THREADS)
	means_query_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	uint64_t i = (uint64_t)blockIdx.x * MEANS_THREADS + threadIdx.x, rest = i / (j.n_slabs * 8);
	uint32_t chunk = i % (j.n_slabs * 8), row = rest % j.n_rows, head = rest / j.n_rows;
	const float share = 1.0f / KV_BLOCK_TOKENS;
	float sum[8] = {};
	uint32_t two[4];

	launch_wait();
	launch_next();
	if (i >= (uint64_t)j.e.shape.n_kv_heads * j.m * j.n_slabs * 8)
		return;
	if (chunk * KV_CHUNK_VALUES < j.e.shape.head_dim)
		sum_queries(j, row * KV_BLOCK_TOKENS,
			    ((uint64_t)head * j.e.shape.head_dim + chunk * 8) * 2, sum);
#pragma unroll
	for (uint32_t k = 0; k < 4; k++)
		two[k] = j.e.shape.bf16
				 ? dtype_bf16::pack(sum[2 * k] * share, sum[2 * k + 1] * share)
				 : dtype_half::pack(sum[2 * k] * share, sum[2 * k + 1] * share);
	j.q[i] = make_uint4(two[0], two[1], two[2], two[3]);
#endif
}

template <typename DTYPE>
__global__ void __launch_bounds__(MEANS_THREADS, 2)
	means_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	extern __shared__ __align__(1024) char shared[];
	uint32_t n = j.n_head_tiles * j.e.shape.n_kv_heads, base = shared_address(shared);
	struct estimate_tile tile;

	launch_wait();
	launch_next();
#pragma unroll 1
	for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
		float scores[16][4] = {};

		if (!find_tile(j, i, NARROW_ROWS, NULL, tile))
			continue;
#pragma unroll 1
		for (uint32_t slab = 0; slab < j.n_slabs; slab++)
			means_bring(j, tile, slab, base + slab * NARROW_STAGE_BYTES);
		asm volatile("cp.async.commit_group;" ::: "memory");
		asm volatile("cp.async.wait_group 0;" ::: "memory");
		__syncthreads();
#pragma unroll 1
		for (uint32_t slab = 0; slab < j.n_slabs; slab++)
			narrow_slab<DTYPE>(base + slab * NARROW_STAGE_BYTES, scores);
		__syncthreads();
		uint32_t row = tile.rows + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
		int32_t seen[2];

		find_seen(j, tile, row, seen);
		sum_tile(j, tile, row, seen, scores);
	}
#endif
}

#endif
