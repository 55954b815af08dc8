/*
 * chosen.cu - see chosen.h. Grid: a block for each work tile; its threads write the work tile's KV
 * tiles, 16 bytes at a time.
 */
#include "chosen.h"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/launch.cuh"

#include <stddef.h>

#define CHOOSE_THREADS 256u
#define KV_TILE_WORDS (sizeof(struct device_kv_tile) / 16)
#define WIDE_TILES_MOST 255u /* of a run */

#if __CUDA_ARCH__ >= 800
static_assert(sizeof(struct device_kv_tile) == 80 && sizeof(struct device_kv_block) == 16,
	      "words of a KV tile");

struct chosen_tile {
	const struct device_choose &c;
	struct device_choice at;
	uint32_t n_wide_tiles;
};

__device__ inline uint32_t window_of(const struct chosen_tile &u, uint32_t kv_tile)
{
	uint32_t block = u.c.blocks[u.at.block + kv_tile / u.c.block_windows];

	return block * u.c.block_windows + kv_tile % u.c.block_windows;
}

__device__ inline uint4 kv_block_word(const struct chosen_tile &u, uint32_t pos)
{
	uint32_t left = pos < u.c.n_k ? u.c.n_k - pos : 0;

	return make_uint4(pos, u.at.n_rows << 16, min(left, KV_BLOCK_TOKENS) << 16, 0);
}

/* Row blocks of which some row sees something of what begins at pos; whose rows all see all of
 * it. */
__device__ inline uint2 masks_of(const struct chosen_tile &u, uint32_t pos)
{
	uint32_t some = 0, all = 0;

#pragma unroll
	for (uint32_t b = 0; b < DEVICE_WARPS; b++) {
		uint32_t first = b * u.c.block_tokens,
			 end = min(first + u.c.block_tokens, u.at.n_rows);

		if (first >= end)
			continue;
		some |= (uint32_t)(u.at.pos + end - 1 >= pos) << b;
		all |= (uint32_t)(u.at.pos + first >=
				  pos + DEVICE_KV_TILE_BLOCKS * KV_BLOCK_TOKENS - 1)
		       << b;
	}
	return make_uint2(some, all);
}

/* What stands behind a KV tile's KV blocks. */
__device__ inline uint4 meta_word(const struct chosen_tile &u, uint32_t kv_tile, uint32_t pos)
{
	uint32_t wide_tile = kv_tile / DEVICE_WIDE_KV_TILES, plain = kv_tile < u.at.n_plain;
	uint2 masks = masks_of(u, pos);

	if (wide_tile < u.n_wide_tiles) {
		uint32_t warps = u.at.n_rows > u.c.block_tokens * (DEVICE_WARPS / 2) ? 0xff : 0x0f;
		uint32_t run = kv_tile % DEVICE_WIDE_KV_TILES
				       ? 0
				       : min(u.n_wide_tiles - wide_tile, WIDE_TILES_MOST);

		return make_uint4(warps | 0xff00 | 1u << 16, run | (run ? 0xff00 : 0), 0, 0);
	}
	return plain ? make_uint4(masks.x | masks.y << 8, 0, 0, 0) :
		     /* causal, and partial */
		       make_uint4(masks.x | masks.y << 8 | 1u << 24, 1u << 16, 0, 0);
}

__device__ inline uint4 source_word(const struct chosen_tile &u, uint32_t window)
{
	uint32_t from = u.c.windows[window], v[DEVICE_KV_TILE_BLOCKS];

#pragma unroll
	for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++)
		v[j] = (window * DEVICE_KV_TILE_BLOCKS + j) * KV_BLOCK_TOKENS < u.c.n_k
			       ? from + j * u.c.kv_block_sources
			       : DEVICE_NONE;
	return make_uint4(v[0], v[1], v[2], v[3]);
}

__device__ inline void write_work_tile(const struct chosen_tile &u, uint32_t index)
{
	struct device_work_tile work_tile = {u.at.row,
					     u.at.n_rows,
					     u.at.kv_tile,
					     u.at.n_kv_tiles,
					     0,
					     3,
					     u.n_wide_tiles ? DEVICE_WORK_TILE_WIDE : 0u,
					     u.c.block_tokens};

	if (threadIdx.x == 0)
		u.c.work_tiles[index] = work_tile;
	if (threadIdx.x < DEVICE_FIRST_KV_TILES)
		((uint4 *)u.c.firsts)[index * DEVICE_FIRST_KV_TILES + threadIdx.x] =
			threadIdx.x < u.at.n_kv_tiles
				? source_word(u, window_of(u, threadIdx.x))
				: make_uint4(DEVICE_NONE, DEVICE_NONE, DEVICE_NONE, DEVICE_NONE);
	if (index == 0 && threadIdx.x < DEVICE_WORK_TILE_ROWS)
		u.c.dests[threadIdx.x] = DEVICE_NONE;
}
#endif

__global__ void __launch_bounds__(CHOOSE_THREADS)
	choose_kernel(const __grid_constant__ struct device_choose c)
{
#if __CUDA_ARCH__ >= 800
	launch_wait();
	launch_next();
	const struct device_choice at = c.choices[blockIdx.x];
	const struct chosen_tile u = {c, at, c.wide ? at.n_plain / DEVICE_WIDE_KV_TILES : 0};
	uint4 *kv_tiles = (uint4 *)(c.kv_tiles + at.kv_tile),
	      *sources = (uint4 *)(c.sources + at.kv_tile);

	write_work_tile(u, blockIdx.x);
	for (uint32_t i = threadIdx.x; i < at.n_kv_tiles * KV_TILE_WORDS; i += CHOOSE_THREADS) {
		uint32_t kv_tile = i / KV_TILE_WORDS, word = i % KV_TILE_WORDS;
		uint32_t pos = window_of(u, kv_tile) * DEVICE_KV_TILE_BLOCKS * KV_BLOCK_TOKENS;

		kv_tiles[i] = word < DEVICE_KV_TILE_BLOCKS
				      ? kv_block_word(u, pos + word * KV_BLOCK_TOKENS)
				      : meta_word(u, kv_tile, pos);
	}
	for (uint32_t i = threadIdx.x; i < at.n_kv_tiles; i += CHOOSE_THREADS)
		sources[i] = source_word(u, window_of(u, i));
#endif
}

extern "C" int device_choose(const struct device_choose *choose, struct launch_to to)
{
	return launch_early(choose_kernel, choose, {choose->n_work_tiles, CHOOSE_THREADS, 0}, to);
}
