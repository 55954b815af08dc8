/* clocks.cuh - marks in kernels (clocks.h); nothing, where the module has no clocks. */
#ifndef COPPICE_CUDA_CLOCKS_CUH
#define COPPICE_CUDA_CLOCKS_CUH

#include "attend.h"
#include "clocks.h"

#ifdef COPPICE_CLOCKS
__device__ inline void clock_put(uint64_t (*blocks)[CLOCK_MARKS], enum clock_mark mark, bool first)
{
	uint64_t now, *at = &blocks[blockIdx.x][mark];

	if (blockIdx.x >= CLOCK_BLOCKS)
		return;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	if (!first || *at == 0)
		*at = now;
}

/* By one thread of a block of attention, the first time that it comes here. */
#define CLOCK_MARK(a, mark, thread) \
	do { \
		if ((a).clocks && threadIdx.x == (thread)) \
			clock_put((a).clocks->blocks, mark, true); \
	} while (0)
#define CLOCK_MERGE(a, mark) \
	do { \
		if ((a).clocks && threadIdx.x == 0) \
			clock_put((a).clocks->merges, mark, false); \
	} while (0)
#else
#define CLOCK_MARK(a, mark, thread) ((void)0)
#define CLOCK_MERGE(a, mark) ((void)0)
#endif

#endif
