/*
 * estimate.cuh - what the ways to multiply (estimate_wide.cuh with wgmma, estimate_narrow.cuh with
 * mma) share: where things lie, which tiles there are, and what becomes of a tile's scores.
 */
#ifndef COPPICE_CUDA_ESTIMATE_CUH
#define COPPICE_CUDA_ESTIMATE_CUH

#include "estimate.h"
#include "kernels/cuda/device/ptx.cuh"

#include <cuda.h>

#define SLAB_VALUES 64u
#define SLAB_BYTES 128u
#define ESTIMATE_LIST 1024u /* tiles */
#define ESTIMATE_LIST_ROWS 1024u
#define NOWHERE (-64) /* a KV block that tensor maps fill with zeros */

/* What the kernels of one estimate know of it. */
struct estimate_job {
	struct device_estimate e;
	uint32_t kv_block_bytes; /* of 8 tokens, K and V */
	uint32_t unit_bytes, kv_block_units; /* that KV blocks are counted in; of a KV block */
	uint32_t k_slabs; /* of a KV block */
	uint32_t page_kv_blocks; /* from a page to the next, as KV blocks are counted */
	uint32_t n_slabs; /* of a square */
	uint32_t n_rows, n_columns; /* squares of the queries of one head, of the keys */
	uint32_t m; /* rows of a KV head: its query heads' one after the other */
	uint32_t tile_columns, n_tiles; /* along the keys */
	uint32_t chunk_log2; /* a chunk is 8 squares << this */
	uint32_t n_chunks;
	uint32_t n_row_tiles; /* along the rows */
	uint32_t n_common; /* tiles along the keys of which every row sees something */
	uint32_t n_head_tiles; /* of a KV head, n_common x n_row_tiles of them first */
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
__host__ __device__ inline uint32_t last_seen_of(const struct estimate_job &j, uint32_t from,
						 uint32_t to)
{
	uint32_t end = to < j.m ? to : j.m;

	return from / j.n_rows == (end - 1) / j.n_rows ? last_seen(j, end - 1)
						       : last_seen(j, j.n_rows - 1);
}

struct estimate_tile {
	uint32_t head, rows, column; /* the tile's first of the KV head's rows; first square */
};

/* Tiles of the same keys follow each other; behind columns that all rows see come those of 'list'.
 * False: nothing of it is seen. */
__device__ inline bool find_tile(const struct estimate_job &j, uint32_t index, uint32_t tile_rows,
				 const uint32_t *list, struct estimate_tile &ret)
{
	uint32_t at = index % j.n_head_tiles, row = at % j.n_row_tiles, column = at / j.n_row_tiles;

	if (column >= j.n_common) {
		uint32_t word = list[at - j.n_common * j.n_row_tiles];

		row = word % ESTIMATE_LIST_ROWS;
		column = j.n_common + word / ESTIMATE_LIST_ROWS;
	}
	ret.head = index / j.n_head_tiles;
	ret.rows = row * tile_rows;
	ret.column = column * j.tile_columns;
	return ret.column <= last_seen_of(j, ret.rows, ret.rows + tile_rows);
}

/* Head's part of what KV blocks are counted in. */
__device__ inline uint32_t head_kv_blocks(const struct estimate_job &j, uint32_t head)
{
	return (j.e.layer * j.e.shape.n_kv_heads + head) * (j.e.page_tokens / KV_BLOCK_TOKENS) *
	       j.kv_block_units;
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

/* What a row does not see scores -inf. seen: the last squares that the lane's two rows see, from
 * the tile's first. */
template <uint32_t N>
__device__ inline void mask_tile(const int32_t (&seen)[2], float (&scores)[N][4])
{
	uint32_t lane = threadIdx.x % 32;

	if (__all_sync(~0u, seen[0] >= (int32_t)(N * 8 - 1) && seen[1] >= (int32_t)(N * 8 - 1)))
		return;
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			scores[n][i] = (int32_t)(n * 8 + lane % 4 * 2 + i % 2) <= seen[i / 2]
					       ? scores[n][i]
					       : -INFINITY;
	}
}

/* In four strands, which need not wait for each other. */
template <uint32_t N> __device__ inline float row_max(const float (&scores)[N][4], uint32_t row)
{
	float max[4];

#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
		float two = fmaxf(scores[n][2 * row], scores[n][2 * row + 1]);

		max[n % 4] = n < 4 ? two : fmaxf(max[n % 4], two);
	}
	return fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3]));
}

/* scores[n][0] and [2] become the sums of both rows' weights of 8 squares, the lane's part. */
template <uint32_t N>
__device__ inline void weigh_tile(const struct estimate_job &j, float (&scores)[N][4],
				  float (&max)[2])
{
	float low[2];

#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		max[i] = quad_max(row_max(scores, i)) * j.scale_log2;
		low[i] = max[i] == -INFINITY ? 0 : max[i];
	}
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 2; i++)
			scores[n][2 * i] =
				exp2_fast(fmaf(scores[n][2 * i], j.scale_log2, -low[i])) +
				exp2_fast(fmaf(scores[n][2 * i + 1], j.scale_log2, -low[i]));
	}
}

/* Where the sums of a lane's two rows go. */
struct estimate_place {
	float *sums; /* of the first row and the tile's first chunk */
	uint64_t next; /* from there to the second row's */
	bool there[2];
};

/* Of two values of a lane and of the one that differs in a bit, each keeps the sum of one. */
__device__ inline float halve(float low, float high, uint32_t bit)
{
	bool upper = threadIdx.x & bit;
	float sent = __shfl_xor_sync(~0u, upper ? low : high, bit);

	return (upper ? high : low) + sent;
}

/* Sums of a row over the four lanes that have parts of it; returns that of all. */
template <uint32_t COUNT, uint32_t N>
__device__ inline float store_sums(float (&scores)[N][4], uint32_t row, float *to, bool there)
{
	uint32_t lane = threadIdx.x % 4;
	float all = 0;

	if constexpr (COUNT < 4) {
#pragma unroll
		for (uint32_t n = 0; n < COUNT; n++) {
			float sum = quad_sum(scores[n][2 * row]);

			all += sum;
			if (there && n == lane)
				to[n] = sum;
		}
		return all;
	} else {
#pragma unroll
		for (uint32_t n = 0; n < COUNT; n += 4) {
			float low = halve(scores[n][2 * row], scores[n + 1][2 * row], 1);
			float high = halve(scores[n + 2][2 * row], scores[n + 3][2 * row], 1);
			float sum = halve(low, high, 2);

			all += sum;
			if (there)
				to[n + lane] = sum;
		}
		return quad_sum(all);
	}
}

/* Adds parts of a chunk two by two, log2 times over, of which COUNT are left; these go to
 * memory. */
template <uint32_t COUNT, uint32_t N>
__device__ inline void add_chunks(float (&scores)[N][4], uint32_t log2,
				  const struct estimate_place &place, float (&sum)[2])
{
	if (COUNT == 1 || log2 == 0) {
		sum[0] = store_sums<COUNT>(scores, 0, place.sums, place.there[0]);
		sum[1] = store_sums<COUNT>(scores, 1, place.sums + place.next, place.there[1]);
		return;
	}
	if constexpr (COUNT > 1) {
#pragma unroll
		for (uint32_t n = 0; n < COUNT / 2; n++) {
			scores[n][0] = scores[2 * n][0] + scores[2 * n + 1][0];
			scores[n][2] = scores[2 * n][2] + scores[2 * n + 1][2];
		}
		add_chunks<COUNT / 2>(scores, log2 - 1, place, sum);
	}
}

__device__ inline void find_seen(const struct estimate_job &j, const struct estimate_tile &tile,
				 uint32_t row, int32_t (&ret)[2])
{
	ret[0] = (int32_t)(last_seen(j, row) - tile.column);
	ret[1] = (int32_t)(last_seen(j, row + 8) - tile.column);
}

/* Scores of 16 rows and 8 N squares, of which the warp's lanes have what mma.m16n8k16 gives them:
 * sums go to memory. row: the lane's first of the KV head's rows, the other is 8 on; seen:
 * find_seen's. */
template <uint32_t N>
__device__ inline void sum_tile(const struct estimate_job &j, const struct estimate_tile &tile,
				uint32_t row, const int32_t (&seen)[2], float (&scores)[N][4])
{
	uint32_t lane = threadIdx.x % 32, at = tile.column / j.tile_columns;
	uint64_t entry = (uint64_t)tile.head * j.m + row;
	const struct estimate_place place = {j.sums + entry * j.n_chunks + at * (N >> j.chunk_log2),
					     (uint64_t)j.n_chunks * 8,
					     {row < j.m, row + 8 < j.m}};
	float max[2], sum[2];

	mask_tile(seen, scores);
	weigh_tile(j, scores, max);
	add_chunks<N>(scores, j.chunk_log2, place, sum);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		if (place.there[i] && lane % 4 == i)
			j.stats[(entry + 8 * i) * j.n_tiles + at] = make_float2(max[i], sum[i]);
	}
}
#endif

#endif
