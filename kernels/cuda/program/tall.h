/*
 * tall.h - what few.h does, of more than 64 rows and up to 160, where they are gated: reading the
 * weights and multiplying them take about as long, so that both have to go on all the time.
 */
#ifndef COPPICE_CUDA_TALL_H
#define COPPICE_CUDA_TALL_H

#include "few.h"

#define TALL_ROWS_LEAST 65u
#define TALL_ROWS_MOST 160u

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each device, the current one, before its first. A cudaError_t as int. */
MUST_CHECK int device_tall_init(void);
/* So many rows, both halves, by silu, without biases or a norm, to where a product reads them? */
bool device_tall_takes(const struct device_few *few);
/* On so many multiprocessors. A cudaError_t as int: 0 is success. It starts work and does not
 * wait. */
MUST_CHECK int device_tall(const struct device_few *few, uint32_t n_blocks, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
