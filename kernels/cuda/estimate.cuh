/*
 * estimate.cuh - what the ways to multiply (estimate_wide.cuh with wgmma, estimate_narrow.cuh with mma) share: where
 * things lie, which tiles there are, and what becomes of a tile's scores.
 */
#ifndef COPPICE_CUDA_ESTIMATE_CUH
#define COPPICE_CUDA_ESTIMATE_CUH

#include "estimate.h"
#include "hopper.cuh"

#include <cuda.h>

#define SLAB_VALUES 64u
#define SLAB_BYTES 128u
#define NOWHERE (-64) /* a group that tensor maps fill with zeros */

/* What the kernels of one estimate know of it. */
struct estimate_job {
	struct device_estimate e;
	uint32_t group_bytes; /* of 8 tokens, K and V */
	uint32_t k_slabs; /* of a group */
	uint32_t n_slabs; /* of a square */
	uint32_t n_rows, n_columns; /* squares of the queries of one head, of the keys */
	uint32_t m; /* rows of a KV head: its query heads' one after the other */
	uint32_t tile_columns, n_tiles; /* along the keys */
	uint32_t chunk_log2; /* a chunk is 8 squares << this */
	uint32_t n_chunks;
	uint32_t n_row_tiles; /* along the rows */
	uint32_t n_q_blocks, n_k_blocks;
	float scale_log2; /* of a square's product */
	uint4 *q; /* [n_kv_heads][m][n_slabs][8] */
	float *sums; /* [n_kv_heads][m][n_chunks] */
	float2 *stats; /* [n_kv_heads][m][n_tiles]: maximum, sum; then weight, - */
};

/* Squares from 0 on that a row sees are those up to this one. */
__host__ __device__ inline uint32_t last_seen(const struct estimate_job &j, uint32_t row)
{
	uint32_t last = j.e.q_pos / j.e.stride + row % j.n_rows;

	return last < j.n_columns ? last : j.n_columns - 1;
}

/* The last that any of the rows [from, to) sees. */
__device__ inline uint32_t last_seen_of(const struct estimate_job &j, uint32_t from, uint32_t to)
{
	uint32_t end = to < j.m ? to : j.m;

	return from / j.n_rows == (end - 1) / j.n_rows ? last_seen(j, end - 1) : last_seen(j, j.n_rows - 1);
}

struct estimate_tile {
	uint32_t head, rows, column; /* the tile's first of the KV head's rows; first square */
};

/* Tiles of the same keys follow each other. False: nothing of it is seen. */
__device__ inline bool find_tile(const struct estimate_job &j, uint32_t index, uint32_t tile_rows,
				 struct estimate_tile &ret)
{
	ret.rows = index % j.n_row_tiles * tile_rows;
	index /= j.n_row_tiles;
	ret.column = index % j.n_tiles * j.tile_columns;
	ret.head = index / j.n_tiles;
	return ret.column <= last_seen_of(j, ret.rows, ret.rows + tile_rows);
}

/* Head's part of what groups are counted in. */
__device__ inline uint32_t head_groups(const struct estimate_job &j, uint32_t head)
{
	return (j.e.layer * j.e.shape.n_kv_heads + head) * (j.e.page_tokens / DEVICE_GROUP_TOKENS);
}

#if __CUDA_ARCH__ >= 800
__device__ inline float quad_max(float x)
{
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ inline float quad_sum(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

/* What a row does not see scores -inf. */
template <uint32_t N>
__device__ inline void mask_tile(const struct estimate_job &j, uint32_t column, uint32_t row, float (&scores)[N][4])
{
	uint32_t lane = threadIdx.x % 32;
	int32_t seen[2] = {(int32_t)(last_seen(j, row) - column), (int32_t)(last_seen(j, row + 8) - column)};

	if (__all_sync(~0u, seen[0] >= (int32_t)(N * 8 - 1) && seen[1] >= (int32_t)(N * 8 - 1)))
		return;
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[n][i] = (int32_t)(n * 8 + lane % 4 * 2 + i % 2) <= seen[i / 2] ? scores[n][i] : -INFINITY;
	}
}

/* scores[n][0] and [2] become the sums of both rows' weights of 8 squares, the lane's part. */
template <uint32_t N>
__device__ inline void weigh_tile(const struct estimate_job &j, float (&scores)[N][4], float (&max)[2])
{
	float low[2];

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		max[i] = -INFINITY;
#pragma unroll
		for (uint32_t n = 0; n < N; n++)
			max[i] = fmaxf(max[i], fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
		max[i] = quad_max(max[i]) * j.scale_log2;
		low[i] = max[i] == -INFINITY ? 0 : max[i];
	}
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 2; i++)
			scores[n][2 * i] = exp2_fast(fmaf(scores[n][2 * i], j.scale_log2, -low[i])) +
					   exp2_fast(fmaf(scores[n][2 * i + 1], j.scale_log2, -low[i]));
	}
}

/* Adds parts of a chunk two by two, COUNT of them, log2 times over. */
template <uint32_t COUNT, uint32_t N> __device__ inline void add_chunks(float (&scores)[N][4], uint32_t log2)
{
	if constexpr (COUNT > 1) {
		if (log2 == 0)
			return;
#pragma unroll
		for (uint32_t n = 0; n < COUNT / 2; n++) {
			scores[n][0] = scores[2 * n][0] + scores[2 * n + 1][0];
			scores[n][2] = scores[2 * n][2] + scores[2 * n + 1][2];
		}
		add_chunks<COUNT / 2>(scores, log2 - 1);
	}
}

/* Scores of 16 rows and 8 N squares, of which the warp's lanes have what mma.m16n8k16 gives them: sums go to memory. row: the
 * lane's first of the KV head's rows, the other is 8 on. */
template <uint32_t N>
__device__ inline void sum_tile(const struct estimate_job &j, const struct estimate_tile &tile, uint32_t row,
				float (&scores)[N][4])
{
	uint32_t lane = threadIdx.x % 32, at = tile.column / j.tile_columns, n_sums = N >> j.chunk_log2;
	uint64_t entry = (uint64_t)tile.head * j.m + row;
	float max[2], sum[2] = {0, 0};
	bool there[2] = {row < j.m, row + 8 < j.m};

	mask_tile(j, tile.column, row, scores);
	weigh_tile(j, scores, max);
	add_chunks<N>(scores, j.chunk_log2);
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 2 && n < n_sums; i++) {
			float all = quad_sum(scores[n][2 * i]);

			sum[i] += all;
			if (there[i] && n % 4 == lane % 4)
				j.sums[(entry + 8 * i) * j.n_chunks + at * n_sums + n] = all;
		}
	}
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		if (there[i] && lane % 4 == i)
			j.stats[(entry + 8 * i) * j.n_tiles + at] = make_float2(max[i], sum[i]);
	}
}
#endif

#endif
