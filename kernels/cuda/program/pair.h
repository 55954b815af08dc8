/*
 * pair.h - what few.h does, of some dozens of rows and few outputs, without a gate: two blocks have
 * half of the inputs each.
 */
#ifndef COPPICE_CUDA_PAIR_H
#define COPPICE_CUDA_PAIR_H

#include "few.h"

#define PAIR_ROWS_LEAST 17u /* of 13 and 16 a run is no shorter, and its products are longer */
#define PAIR_ROWS_MOST 64u

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each device, the current one, before its first. A cudaError_t as int. */
MUST_CHECK int device_pair_init(void);
/* So many rows, of so few outputs that all are under way at a time, without a norm or a gate? */
bool device_pair_takes(const struct device_few *few);
/* On so many multiprocessors. A cudaError_t as int: 0 is success. It starts work and does not
 * wait. */
MUST_CHECK int device_pair(const struct device_few *few, uint32_t n_blocks, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
