/* cluster.cuh - tiles of matrices on their way into shared memory, and blocks in pairs. */
#ifndef COPPICE_CUDA_CLUSTER_CUH
#define COPPICE_CUDA_CLUSTER_CUH

#include "kernels/cuda/device/ptx.cuh"

#include <cuda.h>
#include <stdint.h>

#define CLUSTER_BLOCKS 2u
#define RING_AT 1024u /* in shared memory; before it barriers */
#define RING_END (UINT32_C(227) << 10) /* at most: all that a block may have */

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define IN_PAIRS __cluster_dims__(CLUSTER_BLOCKS, 1, 1)
#else
#define IN_PAIRS
#endif

/* As many stages as there is room for, of barriers and in memory. A stage is full by its bytes, and
 * empty by who has read it. */
template <uint32_t EACH, uint32_t MOST> struct tile_ring {
	static constexpr uint32_t STAGE_BYTES = EACH;
	static constexpr uint32_t STAGES = (RING_END - RING_AT) / STAGE_BYTES;
	static constexpr uint32_t BYTES = RING_AT + STAGES * STAGE_BYTES;
	static_assert(STAGES <= MOST && 2 * MOST * 8 <= RING_AT, "barriers");

	uint32_t base, slot, parity;

	__device__ inline uint32_t full() const
	{
		return base + slot * 8;
	}
	__device__ inline uint32_t empty() const
	{
		return base + (MOST + slot) * 8;
	}
	__device__ inline uint32_t stage() const
	{
		return base + RING_AT + slot * STAGE_BYTES;
	}
	__device__ inline void step()
	{
		slot = slot + 1 == STAGES ? 0 : slot + 1;
		parity ^= slot == 0;
	}
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ inline uint32_t cluster_rank()
{
	return blockIdx.x % CLUSTER_BLOCKS;
}

__device__ inline uint4 shared_four(uint32_t at)
{
	uint4 x;

	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
		     : "r"(at)
		     : "memory");
	return x;
}

/* Of the block of that rank, what lies there where the address is of one's own. */
__device__ inline float4 shared_of(uint32_t rank, uint32_t at)
{
	float4 x;

	asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %4, %5; "
		     "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [r]; }"
		     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
		     : "r"(at), "r"(rank)
		     : "memory");
	return x;
}

__device__ inline void tensor_copy_2(uint32_t to, const CUtensorMap *map, uint32_t x, uint32_t y,
				     uint32_t barrier)
{
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
		     "bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
		     "l"(map), "r"(x), "r"(y), "r"(barrier)
		     : "memory");
}

/* To both blocks, and their barriers. */
__device__ inline void tensor_copy_both(uint32_t to, const CUtensorMap *map, uint32_t x, uint32_t y,
					uint32_t barrier)
{
	asm volatile(
		"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
		".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
		"l"(map), "r"(x), "r"(y), "r"(barrier), "h"((uint16_t)((1u << CLUSTER_BLOCKS) - 1))
		: "memory");
}

/* One thread fills the ring: with weights before the launch before this one has ended, and with
 * rows behind that. Both begin at the same stage, and at what goes there. */
template <typename BRINGER>
__device__ inline void bring_all(BRINGER &weights, BRINGER &rows, uint32_t n_stages)
{
	uint32_t n = 0;

	for (; n < n_stages && weights.more(); n++, weights.step())
		weights.bring_weights();
	launch_wait();
	for (; n > 0; n--, rows.step())
		rows.bring_rows();
#pragma unroll 1
	for (; rows.more(); rows.step()) {
		barrier_wait(rows.at.empty(), rows.at.parity ^ 1);
		rows.bring_weights();
		rows.bring_rows();
	}
}
#endif

#endif
