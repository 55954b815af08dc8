/*
 * bring.h - copies on a batch's own stream by multiprocessors: what the copy engines are given
 * waits for all that they were given before on other streams, slices of KV on their way among it.
 */
#ifndef COPPICE_CUDA_BRING_H
#define COPPICE_CUDA_BRING_H

#include "proto/must_check.h"
#include "format.h"
#include "launch.h"

/* Rows of memory that the device reaches, pinned host memory too. */
struct device_bring {
	uint64_t from, to;
	uint64_t from_stride, to_stride; /* of several */
	uint64_t row_bytes;
	uint32_t n_rows; /* 65,535 at most */
};

/* Rows that must not lie where attention can write them, each of so many bytes: a multiple of 2, as
 * are their addresses. */
struct device_outbound {
	const struct device_copy *copies; /* [n] */
	uint32_t bytes;
	uint32_t n;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Not part of a chain of launches: it is complete before whatever follows on the stream begins. A
 * cudaError_t. */
MUST_CHECK int device_bring(const struct device_bring *copy, device_stream stream);
MUST_CHECK int device_outbound(const struct device_outbound *outbound, struct launch_to to);
/* Loads what one member of a group may launch before any other does. */
MUST_CHECK int device_bring_init(void);

#ifdef __cplusplus
}
#endif

#endif
