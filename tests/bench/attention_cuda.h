/*
 * attention_cuda.h - coppice-bench attention --backend cuda: kernels alone, as published systems are timed.
 *
 * Each workload of a file: time (median of replays of a graph between two events, after other memory was written to flush
 * the cache), the limit that the file names, their ratio and those to the times of other systems in the file
 * (keys that end in _us). Geometric means over workloads of one kind of heads and shape at the end.
 */
#ifndef COPPICE_BENCH_ATTENTION_CUDA_H
#define COPPICE_BENCH_ATTENTION_CUDA_H

#include "kernels/work.h"

struct attention_cuda {
	const char *module; /* path of coppice-cuda.so */
	const char *policies; /* names between commas */
	const char *workload; /* path of the file */
	const char *only; /* part of a workload's name, or NULL */
	uint32_t page_tokens;
	enum work_dtype dtype;
};

/* Exit status. */
int attention_cuda_main(const struct attention_cuda *options);

#endif
