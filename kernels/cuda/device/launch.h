/*
 * launch.h - kernels on their way to the device. Those of a chain are recorded as they are put
 * and then go together, as one graph: a fraction of the processor's time, and next to nothing
 * between the end of one and the begin of the next. Graphs are kept by the kernels that they are
 * made of; what changes from chain to chain is sizes and arguments.
 */
#ifndef COPPICE_CUDA_LAUNCH_H
#define COPPICE_CUDA_LAUNCH_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

#define LAUNCH_CHAIN 8u /* kernels in a chain; more make a second one */
#define LAUNCH_GRAPHS 8u /* that are kept */
#define LAUNCH_ARGUMENT_BYTES 1024u

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct launch_chain;

/* Where a launch goes: at once to a stream, or, of a chain that is being recorded, to its end. */
struct launch_to {
	struct CUstream_st *stream;
	struct launch_chain *recorded; /* NULL: at once */
};

/* A kernel of one argument, a struct. */
struct launch {
	const void *kernel;
	uint32_t n_blocks, block_threads, shared_bytes;
	/* it may begin before the one before it on the stream has ended, and waits for it by
	 * launch_wait */
	uint32_t early;
	const void *argument;
	uint32_t argument_bytes; /* LAUNCH_ARGUMENT_BYTES at most */
};

struct launch_graph {
	const void *kernels[LAUNCH_CHAIN];
	bool early[LAUNCH_CHAIN];
	uint32_t n;
	void *nodes[LAUNCH_CHAIN];
	void *graph, *replay; /* owned; NULL: none */
	uint64_t used; /* when it was last */
};

/* All zero: nothing is recorded. */
struct launch_chain {
	struct launch launches[LAUNCH_CHAIN];
	uint64_t arguments[LAUNCH_CHAIN][LAUNCH_ARGUMENT_BYTES / 8];
	uint32_t n;
	struct launch_graph graphs[LAUNCH_GRAPHS];
	uint64_t uses;
	bool apart; /* graphs are refused: one by one */
};

void launch_chain_done(struct launch_chain *chain);
/* Nothing is recorded. */
void launch_chain_begin(struct launch_chain *chain);
/* Starts what was recorded, of which nothing is left. A cudaError_t: 0 is success. */
MUST_CHECK int launch_chain_go(struct launch_chain *chain, struct CUstream_st *stream);

/* Says how its own launch went: cudaGetLastError would say what somebody asked before. */
MUST_CHECK int launch_put(const struct launch *l, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
