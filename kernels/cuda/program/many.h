/*
 * many.h - what few.h does, of many rows, where they are gated: the gate is made of a product's
 * sums before they are anywhere in memory.
 */
#ifndef COPPICE_CUDA_MANY_H
#define COPPICE_CUDA_MANY_H

#include "few.h"

#define MANY_ROWS 129u /* at least */

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each device, the current one, before its first. A cudaError_t as int. */
MUST_CHECK int device_many_init(void);
/* Both halves, by silu, without biases or a norm, to where a product reads them? */
bool device_many_takes(const struct device_few *few);
/* On so many multiprocessors. A cudaError_t as int: 0 is success. It starts work and does not
 * wait. */
MUST_CHECK int device_many(const struct device_few *few, uint32_t n_blocks, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
