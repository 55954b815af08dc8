/*
 * estimate_narrow.cuh - the product with mma, for devices that have no warp groups.
 *
 * Grid: as many blocks as find room, each takes every so-manieth tile of 128 rows x 128 squares. A
 * warp multiplies 16 rows; all bring slabs, 16 bytes a lane, into a ring of three.
 */
#ifndef COPPICE_CUDA_ESTIMATE_NARROW_CUH
#define COPPICE_CUDA_ESTIMATE_NARROW_CUH

#include "estimate.cuh"

#define NARROW_THREADS 256u
#define NARROW_ROWS 128u
#define NARROW_COLUMNS 128u
#define NARROW_STAGES 3u
#define NARROW_Q_BYTES (NARROW_ROWS * SLAB_BYTES)
#define NARROW_STAGE_BYTES (NARROW_Q_BYTES + NARROW_COLUMNS * SLAB_BYTES)
#define NARROW_BYTES (NARROW_STAGES * NARROW_STAGE_BYTES)

#if __CUDA_ARCH__ >= 800
/* 16 bytes, or zeros. */
__device__ inline void copy_or_clear(uint32_t to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
		     "r"(there ? 16 : 0)
		     : "memory");
}

/* Where a token of the path has its KV block, or DEVICE_NONE. */
__device__ inline uint32_t kv_block_at(const struct estimate_job &j, uint32_t token)
{
	uint32_t window, of = token % ESTIMATE_WINDOW_TOKENS;

	if (token >= j.e.n_k)
		return DEVICE_NONE;
	window = j.e.windows[token / ESTIMATE_WINDOW_TOKENS];
	if (window & ESTIMATE_LISTED)
		return j.e
			.lists[(uint64_t)(window & ~ESTIMATE_LISTED) * ESTIMATE_WINDOW_TOKENS + of];
	return window + of / KV_BLOCK_TOKENS * j.kv_block_units;
}

/* A row of a slab is swizzled as one of an atom of KV is. */
__device__ inline uint32_t narrow_offset(uint32_t row, uint32_t chunk)
{
	const uint32_t dim = SLAB_BYTES / KV_VALUE_BYTES;

	return row * SLAB_BYTES + (chunk ^ kv_swizzle(dim, row)) * KV_CHUNK_BYTES;
}

/* A slab's rows of Q and squares of K, the thread's share. */
__device__ inline void narrow_bring(const struct estimate_job &j, const struct estimate_tile &tile,
				    uint32_t slab, uint32_t stage)
{
	uint32_t chunk = threadIdx.x % 8, half = slab / j.k_slabs, of = slab % j.k_slabs;
	uint32_t kv_blocks = head_kv_blocks(j, tile.head),
		 at = of * SLAB_BYTES + chunk * KV_CHUNK_BYTES;
	uint32_t in_square =
		half * KV_BLOCK_TOKENS + kv_row_at(j.e.shape.head_dim, at / KV_CHUNK_BYTES);

#pragma unroll
	for (uint32_t i = threadIdx.x / 8; i < NARROW_ROWS; i += NARROW_THREADS / 8) {
		uint32_t row = tile.rows + i,
			 kv_block = kv_block_at(j, (tile.column + i) * j.e.stride + in_square);
		bool q_there = row < j.m, k_there = kv_block != DEVICE_NONE;
		const uint4 *q =
			j.q +
			(((uint64_t)tile.head * j.m + (q_there ? row : 0)) * j.n_slabs + slab) * 8 +
			chunk;
		uint64_t k = j.e.pool;

		if (k_there)
			k += (uint64_t)(kv_block + kv_blocks) * j.unit_bytes + at;
		copy_or_clear(stage + narrow_offset(i, chunk), q, q_there);
		copy_or_clear(stage + NARROW_Q_BYTES + narrow_offset(i, chunk), (const void *)k,
			      k_there);
	}
	asm volatile("cp.async.commit_group;" ::: "memory");
}

template <typename DTYPE> __device__ inline void narrow_slab(uint32_t stage, float (&scores)[16][4])
{
	uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;

#pragma unroll
	for (uint32_t k = 0; k < 2; k++) {
		uint32_t a[2][4];

		load_matrix(a[0], stage + narrow_offset(row, 4 * k + lane / 16));
		load_matrix(a[1], stage + narrow_offset(row, 4 * k + 2 + lane / 16));
#pragma unroll
		for (uint32_t n = 0; n < 16; n++) {
			uint32_t b[4];

			load_matrix(b, stage + NARROW_Q_BYTES +
					       narrow_offset(n * 8 + lane % 8, 4 * k + lane / 8));
			DTYPE::multiply(scores[n], a[0], b[0], b[1]);
			DTYPE::multiply(scores[n], a[1], b[2], b[3]);
		}
	}
}

template <typename DTYPE>
__device__ inline void narrow_tile(const struct estimate_job &j, const struct estimate_tile &tile,
				   uint32_t base, float (&scores)[16][4])
{
#pragma unroll 1
	for (uint32_t slab = 0; slab < NARROW_STAGES - 1; slab++) /* there are 8 at least */
		narrow_bring(j, tile, slab, base + slab * NARROW_STAGE_BYTES);
#pragma unroll 1
	for (uint32_t slab = 0; slab < j.n_slabs; slab++) {
		uint32_t next = slab + NARROW_STAGES - 1;

		asm volatile("cp.async.wait_group %0;" ::"n"(NARROW_STAGES - 2) : "memory");
		__syncthreads();
		if (next < j.n_slabs)
			narrow_bring(j, tile, next,
				     base + next % NARROW_STAGES * NARROW_STAGE_BYTES);
		else
			asm volatile("cp.async.commit_group;" ::: "memory");
		narrow_slab<DTYPE>(base + slab % NARROW_STAGES * NARROW_STAGE_BYTES, scores);
	}
	__syncthreads();
}
#endif

template <typename DTYPE>
__global__ void __launch_bounds__(NARROW_THREADS)
	narrow_kernel(const __grid_constant__ struct estimate_job j)
{
#if __CUDA_ARCH__ >= 800
	extern __shared__ __align__(1024) char shared[];
	uint32_t n = j.n_head_tiles * j.e.shape.n_kv_heads;
	struct estimate_tile tile;

	launch_wait();
	launch_next();
#pragma unroll 1
	for (uint32_t i = blockIdx.x; i < n; i += gridDim.x) {
		float scores[16][4] = {};

		if (!find_tile(j, i, NARROW_ROWS, NULL, tile))
			continue;
		uint32_t row = tile.rows + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
		int32_t seen[2];

		narrow_tile<DTYPE>(j, tile, shared_address(shared), scores);
		find_seen(j, tile, row, seen);
		sum_tile(j, tile, row, seen, scores);
	}
#endif
}

#endif
