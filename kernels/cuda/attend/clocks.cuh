/* clocks.cuh - marks in kernels (clocks.h); nothing, where the module has no clocks. */
#ifndef COPPICE_CUDA_CLOCKS_CUH
#define COPPICE_CUDA_CLOCKS_CUH

#include "attend.h"
#include "clocks.h"
#include "kernels/cuda/device/signals.cuh"

#ifdef COPPICE_CLOCKS
#if __CUDA_ARCH__ >= 800
/* The earlier time is the larger one here, and nothing is asked of memory: after a flush the answer
 * would take a microsecond. */
__device__ inline void clock_first(uint64_t (*blocks)[CLOCK_MARKS], enum clock_mark mark)
{
	if (blockIdx.x >= CLOCK_BLOCKS)
		return;

	uint64_t now = device_now_ns();

	asm volatile("red.global.max.u64 [%0], %1;" ::"l"(&blocks[blockIdx.x][mark]), "l"(~now)
		     : "memory");
}
#endif

/* By one thread of a block of attention, the first time that it comes here. */
#define CLOCK_MARK(a, mark, thread) \
	do { \
		if ((a).clocks && threadIdx.x == (thread)) \
			clock_first((a).clocks->blocks, mark); \
	} while (0)
#define CLOCK_MERGE(a, mark) \
	do { \
		if ((a).clocks && threadIdx.x == 0) \
			clock_first((a).clocks->merges, mark); \
	} while (0)
#else
#define CLOCK_MARK(a, mark, thread) ((void)0)
#define CLOCK_MERGE(a, mark) ((void)0)
#endif

#endif
