/*
 * tier_runs.h - copies between pool and host memory as the device is told of them. Copies of as
 * many bytes each, at equal distances on either side, are a run:
 *
 *      from     | a |     | b |     | c |              pages of a layer, or some heads of them
 *      to       | a | b | c |
 *
 * A run of many is one pitched copy; the others go to the copy engines in one call. Single calls
 * would take 3 us each, whatever their size (64 KiB: 16 GB/s of 55). Where the driver has no such
 * call, and for what is so small that the engines are slow even so, TIER_BLOCKS blocks of one busy
 * thread each do it.
 */
#ifndef COPPICE_CUDA_TIER_RUNS_H
#define COPPICE_CUDA_TIER_RUNS_H

#include "proto/must_check.h"
#include "kernels/cuda/device/format.h"

#include <stdbool.h>
#include <stdint.h>

#define TIER_COPIES 248u /* of a launch of blocks, whose parameters have 4 KiB */
#define TIER_BLOCKS 2u
#define TIER_RUNS 256u

/* Copies of so many bytes each, a multiple of 16, as are the addresses. */
struct device_tier {
	uint64_t from[TIER_COPIES], to[TIER_COPIES];
	uint64_t bytes;
	uint32_t n;
};

struct tier_run {
	uint64_t from, to; /* the first */
	uint64_t bytes; /* of each */
	uint64_t from_stride, to_stride; /* of several */
	uint32_t n;
};

struct tier_runs {
	struct tier_run runs[TIER_RUNS];
	uint32_t n;
};

/* What the device takes. */
struct tier_means {
	bool together; /* many copies in one call */
	bool bulk; /* blocks that copy */
	uint64_t run_bytes; /* of a pitched copy at most */
};

/* False: there are as many as there may be. */
bool tier_runs_add(struct tier_runs *runs, uint64_t from, uint64_t to, uint64_t bytes);
/* Puts all of them on the stream; none are left. A cudaError_t; together is cleared where the
 * driver turns out not to have it. ret_blocks: multiprocessors are needed for them. */
MUST_CHECK int tier_runs_launch(struct tier_runs *runs, struct tier_means *means,
				device_stream stream, bool *ret_blocks);

#ifdef __cplusplus
extern "C" {
#endif

MUST_CHECK int device_tier_init(void); /* readies the kernel; a cudaError_t */
/* Of small ones, as large ones go by copy engines. */
MUST_CHECK int device_tier(const struct device_tier *copies, device_stream stream);

#ifdef __cplusplus
}
#endif

#endif
