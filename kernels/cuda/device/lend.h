/*
 * lend.h - device memory that another process opens: plain allocations, since only these have CUDA
 * IPC handles.
 *
 * A block is a whole number of 2 MiB pages, so that it shares none with another allocation: a
 * handle opens all of what the driver holds behind an address. A handle is given out once: where
 * the driver makes one that somebody has had, the block under it is held back until another was
 * found.
 */
#ifndef COPPICE_CUDA_LEND_H
#define COPPICE_CUDA_LEND_H

#include "kernels/backend.h"

struct CUstream_st;

#define LEND_KNOWN 65536u /* handles given out last that are remembered */

struct lend {
	int device;
	uint64_t *known; /* owned, [LEND_KNOWN]: hashes */
	uint64_t n_known; /* ever */
};

/* 0 or -ENOMEM. */
int lend_init(struct lend *lend, int device);
void lend_done(struct lend *lend);
/* A block, zeroed on the stream, which is waited for. bytes: a multiple of 2 MiB. 0, -ENOMEM,
 * -EIO. */
int lend_new(struct lend *lend, uint64_t bytes, struct CUstream_st *stream,
	     struct backend_arena *ret);
/* Waits for the stream. */
void lend_free(struct lend *lend, uint64_t base, struct CUstream_st *stream);

#endif
