/*
 * arenas.h - arenas: device memory that another process maps.
 *
 * Each has memory of its own, which is named by a descriptor and by nothing else: who keeps one, or
 * what was mapped by it, has that memory for good, and can never come to another's. (CUDA's older
 * IPC handles name a place: one that is kept opens what is exported there later.)
 */
#ifndef COPPICE_CUDA_ARENAS_H
#define COPPICE_CUDA_ARENAS_H

#include "vmm.h"

#include "proto/must_check.h"
#include "kernels/backend.h"

struct CUstream_st;
struct arenas_block;

struct arenas {
	struct vmm vmm;
	int peers[BACKEND_DEVICES_MAX]; /* that reach them too */
	uint32_t n_peers;
	struct arenas_block *blocks; /* owned, [n_blocks] */
	uint32_t n_blocks;
};

/* 0, -ENOMEM; -EIO: the driver lacks what it takes. */
MUST_CHECK int arenas_init(struct arenas *arenas, int device);
void arenas_done(struct arenas *arenas);
/* All that come later are reached by another device too. */
void arenas_let(struct arenas *arenas, int device);
/* A block, zeroed on the stream, which is waited for. bytes: a multiple of 2 MiB. 0, -ENOMEM,
 * -ENODEV (another is wanted), -EIO. */
MUST_CHECK int arenas_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream,
			  struct backend_arena *ret);
/* Waits for the device. */
void arenas_free(struct arenas *arenas, uint64_t base);

#endif
