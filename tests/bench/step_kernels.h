/*
 * step_kernels.h - the time of a decode step's own kernels on the GPU: append, attention and merge,
 * with Q, K, V and O in device memory, in a graph between two events, the cache flushed before.
 * What a daemon's steps are to be compared with.
 */
#ifndef COPPICE_BENCH_STEP_KERNELS_H
#define COPPICE_BENCH_STEP_KERNELS_H

#include <stdint.h>

struct step_kernels {
	uint32_t q_heads, kv_heads, dim;
	uint32_t prefix; /* tokens that all sequences share */
	uint32_t n_seqs, tail; /* and tokens of its own of each, the new one among them */
};

/* Microseconds; 0 where there is no GPU, and says why. Blocks. In a process of its own, which
 * leaves the GPU when it ends. */
double step_kernels_us(const struct step_kernels *of);

#endif
