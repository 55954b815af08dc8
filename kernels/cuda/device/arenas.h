/*
 * arenas.h - arenas: device memory that another process opens. They are plain allocations, since
 * only these have CUDA IPC handles.
 *
 * A block is a whole number of 2 MiB pages, so that it shares none with another allocation: a
 * handle opens all of what the driver holds behind an address. A handle is given out once: where
 * the driver makes one that somebody has had, the block under it is held back until another was
 * found.
 */
#ifndef COPPICE_CUDA_ARENAS_H
#define COPPICE_CUDA_ARENAS_H

#include "kernels/must_check.h"
#include "kernels/backend.h"

struct CUstream_st;

#define ARENAS_KNOWN 65536u /* handles given out last that are remembered */

struct arenas {
	int device;
	uint64_t *known; /* owned, [ARENAS_KNOWN]: hashes */
	uint64_t n_known; /* ever */
};

/* 0 or -ENOMEM. */
MUST_CHECK int arenas_init(struct arenas *arenas, int device);
void arenas_done(struct arenas *arenas);
/* A block, zeroed on the stream, which is waited for. bytes: a multiple of 2 MiB. 0, -ENOMEM,
 * -EIO. */
MUST_CHECK int arenas_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream,
			  struct backend_arena *ret);
/* Waits for the stream. */
void arenas_free(uint64_t base, struct CUstream_st *stream);

#endif
