/* nccl.h - NCCL, looked up at run time: devices of one process or of several gather what all
 * have. */
#ifndef COPPICE_CUDA_NCCL_H
#define COPPICE_CUDA_NCCL_H

#include "proto/must_check.h"

#include <stddef.h>
#include <stdint.h>

#define NCCL_ID_BYTES 128u

struct nccl;
struct CUstream_st;

struct nccl_ranks {
	const int *devices; /* [n], of this process */
	uint32_t n;
	uint32_t first, n_all; /* their places among all; 0, n: there is no other process */
	const uint8_t *id; /* of all; NULL: there is no other process */
	uint32_t timeout_ms; /* until all have come */
};

/* What processes that are to gather know each other by: one makes it and tells the others. 0;
 * -ENOENT: there is no libnccl; -EIO: it refuses; and a sentence. */
MUST_CHECK int nccl_id(uint8_t *ret, char *error, size_t bytes);
/* A communicator for each device, by which something has been gathered once. Blocks until all
 * processes have come, no longer than the time limit. As nccl_id, or -ETIMEDOUT. */
MUST_CHECK int nccl_new(const struct nccl_ranks *ranks, struct nccl **ret, char *error,
			size_t bytes);
/* NULL is fine. Waits for other processes to do the same, but not for long. */
void nccl_free(struct nccl *n);

/* What a device gathers: to gets bytes of each device's from, one behind the other. */
struct nccl_piece {
	const void *from;
	void *to;
	uint64_t bytes;
};

/* On a stream of the process's device so many. All ranks make the same calls in the same order,
 * each from its own thread. 0 or -EIO. */
MUST_CHECK int nccl_gather(struct nccl *n, uint32_t index, const struct nccl_piece *piece,
			   struct CUstream_st *stream);
/* What is under way on the device ends soon, whoever it waits for; nothing more is asked of it.
 * Does not wait. */
void nccl_abort(struct nccl *n, uint32_t index);

#endif
