/*
 * clocks.h - when a block of attention came to which part of its work, for tuning. Only a module
 * that is compiled with COPPICE_CLOCKS has any of it (coppice-cuda-clocks.so): the other one's
 * kernels are what they would be without.
 */
#ifndef COPPICE_CUDA_CLOCKS_H
#define COPPICE_CUDA_CLOCKS_H

#include <stdint.h>

/* By the device's clock, ns; of a block's first tile, but for the last. 0: it never came to
 * that. */
enum clock_mark {
	CLOCK_BEGIN, /* the block begins; of a merge, too */
	CLOCK_TILE, /* those who compute are told of a tile */
	CLOCK_Q, /* its Q is there */
	CLOCK_KV, /* its first KV is */
	CLOCK_FOLDED, /* all of it is folded */
	CLOCK_WRITTEN, /* and written */
	CLOCK_END, /* nothing is left to do; of a merge, too */
	CLOCK_MARKS
};

#define CLOCK_BLOCKS 1024u /* of either launch, whose clocks are kept */

/* 0: never. As a launch leaves them each is ~ of the time, so that the first is the largest;
 * measure_clocks gives back times. */
struct device_clocks {
	uint64_t blocks[CLOCK_BLOCKS][CLOCK_MARKS];
	uint64_t merges[CLOCK_BLOCKS][CLOCK_MARKS];
};

#endif
