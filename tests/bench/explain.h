/*
 * explain.h - coppice-bench attention --explain: what the GPU's planner chooses for a workload, and
 * what it expects each part to cost. Needs no device.
 */
#ifndef COPPICE_BENCH_EXPLAIN_H
#define COPPICE_BENCH_EXPLAIN_H

#include "cases.h"
#include "kernels/cuda/schedule/costs.h"

struct explain {
	const char *workload; /* file; NULL: the built-in cases of --backend cuda */
	struct case_filter *only;
	const char *policy;
	uint32_t n_random; /* trees drawn anew, in place of those built in */
	struct case_options cases;
	uint32_t n_blocks; /* multiprocessors */
	const struct costs *costs;
};

/* Prints a line for each workload. Returns the exit status. */
int explain_main(const struct explain *e);

#endif
