/* clocks.cuh - marks in kernels (clocks.h); nothing, where the module has no clocks. */
#ifndef COPPICE_CUDA_CLOCKS_CUH
#define COPPICE_CUDA_CLOCKS_CUH

#include "attend.h"
#include "clocks.h"

#ifdef COPPICE_CLOCKS
/* The earlier time is the larger one here, and nothing is asked of memory: after a flush the answer
 * would take a microsecond. */
__device__ inline void clock_first(uint64_t (*blocks)[CLOCK_MARKS], enum clock_mark mark)
{
	uint64_t now;

	if (blockIdx.x >= CLOCK_BLOCKS)
		return;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	asm volatile("red.global.max.u64 [%0], %1;" ::"l"(&blocks[blockIdx.x][mark]), "l"(~now)
		     : "memory");
}

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
