/*
 * weights.h - weights in memory of the device that nothing else is taken from, and their way there.
 */
#ifndef COPPICE_CUDA_WEIGHTS_H
#define COPPICE_CUDA_WEIGHTS_H

#include "kernels/cuda/device/vmm.h"
#include "kernels/must_check.h"

#include <stdbool.h>
#include <stdint.h>

#define WEIGHTS_PIECES 2u

struct CUstream_st;
struct CUevent_st;

struct backend_weights {
	int device;
	struct vmm vmm;
	char *base; /* owned, device; NULL: none yet */
	uint64_t bytes; /* whole pages */
	int fd; /* owned: by which others map them; -1: they cannot */
	struct CUstream_st *stream; /* owned: its own, so that nobody's batch waits */
	/* owned, pinned: each is written while the other one crosses the bus */
	char *pieces[WEIGHTS_PIECES];
	struct CUevent_st *crossed[WEIGHTS_PIECES]; /* owned */
};

/* As backend_program_ops have it; device: the CUDA ordinal. */
MUST_CHECK int weights_new(int device, uint64_t bytes, struct backend_weights **ret);
MUST_CHECK int weights_put(struct backend_weights *weights, uint64_t offset, const void *from,
			   uint64_t bytes);
void weights_free(struct backend_weights *weights); /* NULL is fine */

#endif
