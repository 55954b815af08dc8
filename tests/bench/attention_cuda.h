/*
 * attention_cuda.h - coppice-bench attention --backend cuda: kernels alone, as published systems
 * are timed.
 *
 * First the time of an empty graph and what the card's memory gives. Then each workload of a file,
 * or those built in: time (median of replays of a graph between two events, after other memory was
 * written to flush the cache), the limit that the file names, else the one drawn from the card's
 * curve and the tensor cores' rate, their ratio, those to the times of other systems in the file
 * (keys that end in _us or _ms), what the planner expected, and what planning takes. At the end
 * tables: see results.h.
 */
#ifndef COPPICE_BENCH_ATTENTION_CUDA_H
#define COPPICE_BENCH_ATTENTION_CUDA_H

#include "cases.h"

#include <stdbool.h>

struct attention_cuda {
	const char *module; /* path of coppice-cuda.so */
	const char *policies; /* names between commas, or all */
	const char *workload; /* path of the file; NULL: those built in */
	struct case_filter *only;
	uint32_t n_random; /* trees drawn anew, in place of those built in */
	struct case_options cases;
	double tflops; /* of the tensor cores, in fp16 and bf16 */
	const char *costs; /* path of a file that fit saved; NULL: what is compiled in */
	bool brief; /* the tables alone */
	bool clocks; /* what a block's time goes to; the module has clocks */
};

/* Exit status. */
int attention_cuda_main(const struct attention_cuda *options);

#endif
