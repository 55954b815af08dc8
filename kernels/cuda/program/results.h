/*
 * results.h - what comes of rows of logits: the log of their sum, the likeliest, a score, and all
 * of it written to where each row wants it.
 */
#ifndef COPPICE_CUDA_RESULTS_H
#define COPPICE_CUDA_RESULTS_H

#include "kernels/cuda/device/launch.h"
#include "proto/arith.h"
#include "proto/must_check.h"
#include "kernels/program/program.h"

#define RESULTS_CHUNK 4096u /* logits that a block looks through; a power of two */

/* Of a chunk: the largest, and the sum of exp(logit - largest). */
struct device_sum {
	float max, sum;
};

/* Chunks that a vocabulary is cut into. */
static inline uint32_t results_chunks(uint32_t n_vocab)
{
	return ceil_div(n_vocab, RESULTS_CHUNK);
}

struct device_results {
	const float *logits; /* [n_rows], stride apart, to be multiplied by factor */
	const struct program_wanted *wanted; /* [n_rows], on the device */
	struct device_sum *sums; /* [n_rows][chunks] */
	uint64_t *tops; /* [n_rows][chunks][PROGRAM_TOP_MAX] */
	uint64_t stride;
	float factor;
	uint32_t n_vocab, n_rows;
	uint32_t n_chunks; /* 0: there are no logits */
};

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaError_t as int: 0 is success. It starts work and does not wait. */
MUST_CHECK int device_results(const struct device_results *results, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
