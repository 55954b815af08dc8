/* played_attend.h - kernels that are played on the CPU (played_attend.cu), and that attend.h cannot
 * ask for: of keys and values of different dims. */
#ifndef COPPICE_TESTS_PLAYED_ATTEND_H
#define COPPICE_TESTS_PLAYED_ATTEND_H

#include "kernels/cuda/attend/attend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention and its merge, of fp16: keys of 128 and values of 64, or keys of 192 and values of 128.
 * A cudaError_t as int. */
MUST_CHECK int played_two_dims(const struct device_attend *attend, uint32_t qk_dim);

#ifdef __cplusplus
}
#endif

#endif
