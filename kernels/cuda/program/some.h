/*
 * some.h - what few.h does, of more rows: some dozens. Reading the weights is still what takes
 * time, but rows are too many to have all of them in shared memory.
 */
#ifndef COPPICE_CUDA_SOME_H
#define COPPICE_CUDA_SOME_H

#include "few.h"
#include "some_cut.h"

#define SOME_ROWS 64u
#define SOME_LONG_ROWS 16u

/* What the sums of parts of one launch are in. */
struct device_some_room {
	void *parts; /* SOME_PARTS_BYTES */
	uint32_t *counters; /* [SOME_COUNTERS], all 0 before and after */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Once for each device, the current one, before its first. A cudaError_t as int. */
MUST_CHECK int device_some_init(void);
/* Several rows without a norm, of which this takes less time than few.h and cuBLASLt: where they
 * are gated; or at most SOME_LONG_ROWS, so long that few.h would begin anew with parts of them. */
bool device_some_takes(const struct device_few *few);
/* On so many multiprocessors. A cudaError_t as int: 0 is success. It starts work and does not
 * wait. */
MUST_CHECK int device_some(const struct device_few *few, const struct device_some_room *room,
			   uint32_t n_blocks, struct launch_to to);

#ifdef __cplusplus
}
#endif

#endif
