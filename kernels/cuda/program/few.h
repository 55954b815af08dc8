/*
 * few.h - an operation's products with few rows, all of its matrices, biases and gate as one
 * launch. Few rows are a matter of reading the weights: everything else hides behind that, and
 * reading begins before the launch before it has ended, as weights never change.
 */
#ifndef COPPICE_CUDA_FEW_H
#define COPPICE_CUDA_FEW_H

#include "elements.h"

#define FEW_ROWS 12u /* of more, cuBLASLt makes 16 in less time */

struct device_few {
	const void *in; /* [n_rows], in_stride apart, of the matrices' type */
	/* in place of that, where there is a weight: of these rows what device_norm makes */
	const float *wide;
	struct device_vector norm;
	uint32_t wide_stride;
	float eps;
	const void *w[3]; /* [n_out[i]] of n_in, w_stride apart; gated: two of one size */
	struct device_vector bias[3];
	struct device_rows out; /* outputs one behind the other; its type is the matrices' */
	uint32_t n_out[3]; /* 0: there is none */
	uint32_t in_stride, w_stride, n_in, n_rows;
	uint32_t gated, act;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each device, the current one, before its first. A cudaError_t as int. */
MUST_CHECK int device_few_init(void);
/* Are its rows few, and short enough? With a norm: fewer, and shorter. */
bool device_few_takes(const struct device_few *few);
/* Do all inputs of its rows find room at once? */
bool device_few_holds(const struct device_few *few);
/* On so many multiprocessors. A cudaError_t as int: 0 is success. It starts work and does not
 * wait. */
MUST_CHECK int device_few(const struct device_few *few, uint32_t n_blocks, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
