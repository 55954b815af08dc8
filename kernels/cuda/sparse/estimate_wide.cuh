/*
 * estimate_wide.cuh - the product with wgmma, sm_90.
 *
 * Grid: clusters of two blocks, as many as there are multiprocessors for; each cluster takes every
 * so-manieth tile of 256 rows x 256 squares. A block has 128 of the rows, and brings half of the
 * squares' keys to both. Two warp groups multiply, 64 rows each; a thread of each of four warps
 * brings its share of slabs into a ring of four: a window's squares are one copy, and how many of
 * these a thread can start is what bounds the rate.
 */
#ifndef COPPICE_CUDA_ESTIMATE_WIDE_CUH
#define COPPICE_CUDA_ESTIMATE_WIDE_CUH

#include "estimate.cuh"
#include "proto/arith.h"

#define WIDE_THREADS 384u
#define WIDE_ROWS 128u /* of a block */
#define WIDE_COLUMNS 256u
#define WIDE_STAGES 4u
#define WIDE_Q_BYTES (WIDE_ROWS * SLAB_BYTES)
#define WIDE_STAGE_BYTES (WIDE_Q_BYTES + WIDE_COLUMNS * SLAB_BYTES)
#define WIDE_FULL (WIDE_STAGES * WIDE_STAGE_BYTES)
#define WIDE_EMPTY (WIDE_FULL + WIDE_STAGES * 8)
#define WIDE_WINDOWS (WIDE_EMPTY + WIDE_STAGES * 8) /* of a tile: each bringing warp's */
#define WIDE_LIST (WIDE_WINDOWS + 64 * 4) /* of tiles */
#define WIDE_BYTES (WIDE_LIST + ESTIMATE_LIST * 4)
#define WIDE_WARPS 8u /* that multiply */
#define WIDE_BLOCKS 2u /* of a cluster */
#define WIDE_BRINGERS 4u /* warps that bring */
#define WIDE_MINE (WIDE_COLUMNS / WIDE_BLOCKS) /* squares that a block brings */

struct wide_maps {
	CUtensorMap q; /* values of a row, rows, KV heads */
	/* values of a slab, slabs, KV blocks of a square, squares of a page, pages: of pages side
	 * by side */
	CUtensorMap runs;
	/* values of a slab, slabs, KV blocks of a square, squares: a window's */
	CUtensorMap windows;
	CUtensorMap kv_blocks; /* the same of one KV block */
};

#ifdef WGMMA
struct wide {
	const struct estimate_job &j;
	const struct wide_maps &maps;
	uint32_t base; /* of shared memory */
	uint32_t rank; /* in the cluster */
	const uint32_t *list; /* of tiles */
};

struct wide_ring {
	uint32_t slot, parity;
	__device__ void step()
	{
		slot = slot + 1 == WIDE_STAGES ? 0 : slot + 1;
		parity ^= slot == 0;
	}
};

/* Where a copy goes in shared memory, and the barrier that is told when it is there. */
struct landing {
	uint32_t at, barrier;
};

__device__ inline void tensor_copy_3(struct landing to, const CUtensorMap *map, uint32_t x,
				     uint32_t y, uint32_t z)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::"
		     "bytes [%0], "
		     "[%1, {%2, %3, %4}], [%5];" ::"r"(to.at),
		     "l"(map), "r"(x), "r"(y), "r"(z), "r"(to.barrier)
		     : "memory");
}

/* To both blocks of the cluster, and their barriers. */
__device__ inline void tensor_copy_both(struct landing to, const CUtensorMap *map, uint32_t slab,
					uint32_t kv_block, int32_t at)
{
	asm volatile(
		"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
		".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to.at),
		"l"(map), "r"(0), "r"(slab), "r"(kv_block), "r"(at), "r"(to.barrier),
		"h"((uint16_t)((1u << WIDE_BLOCKS) - 1))
		: "memory");
}

/* A warp's whole share of a slab, of pages side by side. */
__device__ inline void copy_run(struct landing to, const CUtensorMap *map, uint32_t slab,
				uint32_t kv_block, int32_t at)
{
	asm volatile(
		"cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
		".multicast::cluster [%0], [%1, {%2, %3, %4, %5, %2}], [%6], %7;" ::"r"(to.at),
		"l"(map), "r"(0), "r"(slab), "r"(kv_block), "r"(at), "r"(to.barrier),
		"h"((uint16_t)((1u << WIDE_BLOCKS) - 1))
		: "memory");
}

/* Windows of the keys that the block brings, and of these the warp. */
__device__ inline uint32_t first_window(const struct wide &w, const struct estimate_tile &tile,
					uint32_t per_warp)
{
	return (tile.column + w.rank * WIDE_MINE) * w.j.e.stride / ESTIMATE_WINDOW_TOKENS +
	       threadIdx.x / 32 % WIDE_BRINGERS * per_warp;
}

__device__ inline uint32_t window_of(const struct estimate_job &j, uint32_t window)
{
	return window * ESTIMATE_WINDOW_TOKENS < j.e.n_k ? j.e.windows[window] : DEVICE_NONE;
}

/* One slab of a window's squares, which go to one place behind the other. */
__device__ inline void bring_window(const struct wide &w, uint32_t window, uint32_t kv_blocks,
				    uint32_t slab, struct landing to)
{
	uint32_t half = slab / w.j.k_slabs, of = slab % w.j.k_slabs,
		 per_square = w.j.e.stride / KV_BLOCK_TOKENS;

	if (window == DEVICE_NONE || !(window & ESTIMATE_LISTED)) {
		int32_t at = window == DEVICE_NONE ? NOWHERE
						   : (int32_t)((window + kv_blocks) / per_square);

		tensor_copy_both(to, &w.maps.windows, of, half, at);
		return;
	}
	const uint32_t *list =
		w.j.e.lists + (uint64_t)(window & ~ESTIMATE_LISTED) * ESTIMATE_WINDOW_TOKENS;
#pragma unroll 1
	for (uint32_t square = 0; square < 4 / per_square; square++) {
		uint32_t token =
			square * w.j.e.stride + half * KV_BLOCK_TOKENS + of % KV_BLOCK_TOKENS;
		uint32_t kv_block = list[token];

		tensor_copy_both({to.at + square * SLAB_BYTES, to.barrier}, &w.maps.kv_blocks, of,
				 0,
				 kv_block == DEVICE_NONE ? NOWHERE
							 : (int32_t)(kv_block + kv_blocks));
	}
}

/* Are the windows those of pages side by side, from a page's first on? */
__device__ inline bool is_run(const struct estimate_job &j, const uint32_t *windows, uint32_t n)
{
	uint32_t per_page = j.e.page_tokens / ESTIMATE_WINDOW_TOKENS;

	if (per_page == 0 || per_page > n || windows[0] & ESTIMATE_LISTED ||
	    windows[0] % (j.e.page_tokens / KV_BLOCK_TOKENS))
		return false;
	for (uint32_t i = 1; i < n; i++) {
		if (windows[i] != windows[0] + i / per_page * j.page_kv_blocks + i % per_page * 4)
			return false;
	}
	return true;
}

/* A thread of each warp that brings takes n windows of every slab. */
__device__ inline void bring_tile(const struct wide &w, const struct estimate_tile &tile,
				  uint32_t n, uint32_t *windows, struct wide_ring &at)
{
	uint32_t warp = threadIdx.x / 32 % WIDE_BRINGERS,
		 kv_blocks = head_kv_blocks(w.j, tile.head);
	uint32_t window_bytes = ESTIMATE_WINDOW_TOKENS / w.j.e.stride * SLAB_BYTES, listed = 0;
	bool run;

	for (uint32_t i = 0; i < n; i++) {
		windows[i] = window_of(w.j, first_window(w, tile, n) + i);
		listed |= windows[i] & ESTIMATE_LISTED;
	}
	run = is_run(w.j, windows, n);
#pragma unroll 1
	for (uint32_t slab = 0; slab < w.j.n_slabs; slab++, at.step()) {
		uint32_t full = w.base + WIDE_FULL + at.slot * 8,
			 stage = w.base + at.slot * WIDE_STAGE_BYTES;
		uint32_t to = stage + WIDE_Q_BYTES + w.rank * WIDE_MINE * SLAB_BYTES +
			      warp * n * window_bytes;
		uint32_t half = slab / w.j.k_slabs, of = slab % w.j.k_slabs,
			 shift = w.j.e.stride / 16;

		barrier_wait(w.base + WIDE_EMPTY + at.slot * 8, at.parity ^ 1);
		if (warp == 0) {
			barrier_expect(full, WIDE_STAGE_BYTES);
			tensor_copy_3({stage, full}, &w.maps.q, slab * SLAB_VALUES,
				      tile.rows + w.rank * WIDE_ROWS, tile.head);
		}
		if (run) {
			copy_run({to, full}, &w.maps.runs, of, half,
				 (int32_t)((windows[0] + kv_blocks) >> shift));
			continue;
		}
		if (!listed) {
#pragma unroll 4
			for (uint32_t i = 0; i < n; i++)
				tensor_copy_both({to + i * window_bytes, full}, &w.maps.windows, of,
						 half,
						 (int32_t)((windows[i] + kv_blocks) >> shift));
			continue;
		}
#pragma unroll 1
		for (uint32_t i = 0; i < n; i++)
			bring_window(w, windows[i], kv_blocks, slab, {to + i * window_bytes, full});
	}
}

template <typename DTYPE> struct wide_product;

#define WIDE_D(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define WIDE_D4(i) WIDE_D(i), WIDE_D(i + 1), WIDE_D(i + 2), WIDE_D(i + 3)
#define WIDE_D8(i) WIDE_D4(i), WIDE_D4(i + 4)
#define WIDE_128 \
	WGMMA_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%" \
		 "83,%84,%85,%86,%87," \
		 "%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%" \
		 "106,%107,%108,%109," \
		 "%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%" \
		 "125,%126,%127"

/* d (64 x 256) = or += a (64 x 16) x b (16 x 256), both in shared memory. */
#define WIDE_DEFINE(DTYPE, TYPE) \
	template <> struct wide_product<DTYPE> { \
		__device__ static void multiply(float (&d)[32][4], uint64_t a, uint64_t b, \
						bool add) \
		{ \
			asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; " \
				     "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE \
				     " {" WIDE_128 "}, %128, %129, p, 1, 1, 0, 0; }" \
				     : WIDE_D8(0), WIDE_D8(8), WIDE_D8(16), WIDE_D8(24) \
				     : "l"(a), "l"(b), "r"((uint32_t)add)); \
		} \
	};
WIDE_DEFINE(dtype_half, "f16")
WIDE_DEFINE(dtype_bf16, "bf16")

/* A slab's product is started when the one before it may still be under way. */
template <typename DTYPE>
__device__ inline void multiply_tile(const struct wide &w, struct wide_ring &at,
				     float (&scores)[32][4])
{
	uint32_t kv_block = threadIdx.x / 128, left = w.j.n_slabs, last = 0;
	bool add = false;

	do {
		uint32_t stage = w.base + at.slot * WIDE_STAGE_BYTES;
		uint64_t q = wgmma_matrix<64>(stage + kv_block * 64 * SLAB_BYTES, 16, 1024);
		uint64_t k = wgmma_matrix<64>(stage + WIDE_Q_BYTES, 16, 1024);

		barrier_wait(w.base + WIDE_FULL + at.slot * 8, at.parity);
		wgmma_begin();
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			wide_product<DTYPE>::multiply(scores, q + 2 * i, k + 2 * i, add || i > 0);
		wgmma_commit();
		wgmma_wait<1>();
		if (add)
			barrier_arrive_both(w.base + WIDE_EMPTY + last * 8);
		add = true;
		last = at.slot;
		at.step();
	} while (--left);
	wgmma_wait<0>();
	registers_fence(scores);
	barrier_arrive_both(w.base + WIDE_EMPTY + last * 8);
}

/* By one warp. */
__device__ inline void list_tiles(const struct estimate_job &j, uint32_t *list)
{
	uint32_t n = (j.n_tiles - j.n_common) * j.n_row_tiles, at = 0,
		 rows = WIDE_BLOCKS * WIDE_ROWS;

	for (uint32_t i = threadIdx.x % 32; i < ceil_div(n, 32) * 32; i += 32) {
		uint32_t row = i % j.n_row_tiles, column = i / j.n_row_tiles;
		bool seen = i < n && (j.n_common + column) * j.tile_columns <=
					     last_seen_of(j, row * rows, (row + 1) * rows);
		uint32_t others = __ballot_sync(~0u, seen);

		if (seen)
			list[at + __popc(others & ((1u << threadIdx.x % 32) - 1))] =
				column * ESTIMATE_LIST_ROWS + row;
		at += __popc(others);
	}
}

template <typename DTYPE>
__device__ void wide_multiply(const struct wide &w, uint32_t cluster, uint32_t n_clusters)
{
	uint32_t n = w.j.n_head_tiles * w.j.e.shape.n_kv_heads, thread = threadIdx.x % 256;
	struct wide_ring at = {0, 0};
	struct estimate_tile tile;

#pragma unroll 1
	for (uint32_t i = cluster; i < n; i += n_clusters) {
		float scores[32][4];

		if (!find_tile(w.j, i, WIDE_BLOCKS * WIDE_ROWS, w.list, tile))
			continue;
		uint32_t row = tile.rows + w.rank * WIDE_ROWS + thread / 32 * 16 + thread % 32 / 4;
		int32_t seen[2];

		find_seen(w.j, tile, row, seen);
		multiply_tile<DTYPE>(w, at, scores);
		sum_tile(w.j, tile, row, seen, scores);
	}
}

__device__ inline void wide_bring(const struct wide &w, uint32_t *windows, uint32_t cluster,
				  uint32_t n_clusters)
{
	uint32_t n = w.j.n_head_tiles * w.j.e.shape.n_kv_heads;
	uint32_t n_windows = WIDE_MINE * w.j.e.stride / ESTIMATE_WINDOW_TOKENS / WIDE_BRINGERS;
	struct wide_ring at = {0, 0};
	struct estimate_tile tile;

#pragma unroll 1
	for (uint32_t i = cluster; i < n; i += n_clusters) {
		if (find_tile(w.j, i, WIDE_BLOCKS * WIDE_ROWS, w.list, tile))
			bring_tile(w, tile, n_windows, windows, at);
	}
}
#endif

template <typename DTYPE>
__global__ void __launch_bounds__(WIDE_THREADS, 1)
	wide_kernel(const __grid_constant__ struct estimate_job j,
		    const __grid_constant__ struct wide_maps maps)
{
#ifdef WGMMA
	extern __shared__ __align__(1024) char shared[];
	uint32_t *list = (uint32_t *)(shared + WIDE_LIST);
	struct wide w = {j, maps, shared_address(shared), blockIdx.x % WIDE_BLOCKS, list};

	if (threadIdx.x / 32 == 1)
		list_tiles(j, list);
	if (threadIdx.x < WIDE_STAGES) {
		barrier_init(w.base + WIDE_FULL + threadIdx.x * 8, 1);
		barrier_init(w.base + WIDE_EMPTY + threadIdx.x * 8, WIDE_BLOCKS * WIDE_WARPS);
		fence_barriers();
	}
	__syncthreads();
	cluster_sync();
	if (threadIdx.x < WIDE_WARPS * 32) {
		registers_more<232>();
		launch_wait();
		launch_next();
		wide_multiply<DTYPE>(w, blockIdx.x / WIDE_BLOCKS, gridDim.x / WIDE_BLOCKS);
	} else {
		registers_less<40>();
		launch_wait();
		if (threadIdx.x % 32 == 0)
			wide_bring(w,
				   (uint32_t *)(shared + WIDE_WINDOWS) +
					   threadIdx.x / 32 % WIDE_BRINGERS * 16,
				   blockIdx.x / WIDE_BLOCKS, gridDim.x / WIDE_BLOCKS);
	}
	__syncwarp();
	cluster_sync(); /* what the other block's copies bring and arrive at is here until then */
#endif
}

#endif
