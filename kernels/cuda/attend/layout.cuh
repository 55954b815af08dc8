/*
 * layout.cuh - what lies where in a block's shared memory, and who the block's warps are.
 *
 *   ring    slots, each for a KV tile on its way from memory to the warps that compute, and its
 *           meta
 *   rows    a part for each warp: Q of row block w on the way in; where several warps share a row
 *           block 64 columns of warp w's sums on the way out: who writes them is past its Q
 *   sums    of each warp's rows, when a work tile ends; before it begins, where Q of its
 *           tokens lies
 *   work    what entry comes next, from the fetching warp to all others
 *
 * Warps 0 to 7 compute, 8 fetches KV, 9 to 11 fetch Q.
 */
#ifndef COPPICE_CUDA_LAYOUT_CUH
#define COPPICE_CUDA_LAYOUT_CUH

#include "attend.h"
#include "traits.cuh"
#include "kernels/cuda/device/merged.cuh"

#define WARPS 12u
#define Q_WARPS (WARPS - DEVICE_WARPS - 1)
#define THREADS (WARPS * 32)
/* Of KV, asked for before the block's first Q: no more than keeps memory busy. Of a wide work tile
 * that the ring does not hold it is a wide tile (fetch_work_tile). */
#define KV_TILES_BEFORE_Q 6u

/* Named; those who compute have 1 to 7 for what concerns a row block. */
#define COMPUTE_BARRIER 13
#define FIRST_Q_BARRIER 14
#define Q_BARRIER 15

/* Of a thread, when the block begins; then of those who compute, for sums, scores and Q, and of the
 * others. */
#define LAUNCH_REGISTERS 168
#define COMPUTE_REGISTERS 216
#define FETCH_REGISTERS 72

/* Or the block would wait for more for ever. */
static_assert(COMPUTE_REGISTERS * DEVICE_WARPS + FETCH_REGISTERS * (WARPS - DEVICE_WARPS) <=
		      LAUNCH_REGISTERS * WARPS,
	      "registers of a block");

/* Of an entry, as the fetching warp hands it on. */
struct work {
	struct device_work_tile work_tile;
	uint32_t head;
	uint32_t pad[3];
};

template <typename T, uint32_t SLOTS = T::slots> struct layout {
	static constexpr uint32_t rows = SLOTS * T::kv_tile_bytes;
	/* struct device_kv_tile of each KV tile */
	static constexpr uint32_t metas = rows + DEVICE_WARPS * T::rows_stride;
	static constexpr uint32_t sums = metas + SLOTS * sizeof(struct device_kv_tile);
	static constexpr uint32_t work =
		sums + DEVICE_WARPS * DEVICE_BLOCK_ROWS * sizeof(struct merge_state);
	static constexpr uint32_t full = work + WORK_SLOTS * sizeof(struct work);
	static constexpr uint32_t empty = full + SLOTS * 8;
	static constexpr uint32_t work_full = empty + SLOTS * 8;
	static constexpr uint32_t work_empty = work_full + WORK_SLOTS * 8;
	static constexpr uint32_t rows_full = work_empty + WORK_SLOTS * 8;
	static constexpr uint32_t rows_empty = rows_full + 8;
	static constexpr uint32_t bytes = rows_empty + 8;

	static_assert(bytes == rows + DEVICE_WARPS * T::rows_stride + LAYOUT_BYTES +
				       SLOTS * (sizeof(struct device_kv_tile) + 16),
		      "what the number of slots was found by");
};

/* Where chunk c of a row of a row block lies in its Q. */
template <typename T> __device__ inline uint32_t q_chunk_offset(uint32_t row, uint32_t chunk)
{
	return row / 8 * (T::rows_stride / 2) + kv_chunk_offset(T::qk, row % 8, chunk);
}

/* Row of a row block to token of the work tile; the block's last rows may have none. inverse: 65536
 * / heads of a row + 1. */
__device__ inline uint32_t token_of(const struct device_work_tile &work_tile, uint32_t block,
				    uint32_t row, uint32_t inverse)
{
	uint32_t token = row * inverse >> 16;

	if (token >= work_tile.block_tokens)
		return DEVICE_NONE;
	return work_tile.flags & DEVICE_WORK_TILE_DEALT ? (token << work_tile.blocks_log2) + block
							: block * work_tile.block_tokens + token;
}

/* A place in the ring and the parity of the phase that it is in; all who walk the ring step
 * alike. */
template <uint32_t SLOTS> struct ring {
	uint32_t slot, parity;

	__device__ void step()
	{
		slot++;
		if (slot == SLOTS) {
			slot = 0;
			parity ^= 1;
		}
	}

	/* n places on, at most once round. */
	__device__ struct ring<SLOTS> ahead(uint32_t n) const {
		bool round = slot + n >= SLOTS;

		return (struct ring<SLOTS>){round ? slot + n - SLOTS : slot + n, parity ^ round};
	}
};

/* The same of entries of work. */
typedef struct ring<WORK_SLOTS> work_ring;

#endif
