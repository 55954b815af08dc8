/*
 * weights.h - weights in memory of the device that nothing else is taken from.
 */
#ifndef COPPICE_CUDA_WEIGHTS_H
#define COPPICE_CUDA_WEIGHTS_H

#include "ferry.h"

#include "kernels/cuda/device/vmm.h"
#include "proto/must_check.h"

#include <stdint.h>

#define WEIGHTS_GRAIN (UINT64_C(2) << 20) /* a page of the device */

struct backend_weights {
	struct ferry *ferry; /* borrowed: of their device */
	struct vmm vmm;
	char *base; /* owned, device; NULL: none yet */
	uint64_t bytes; /* whole pages */
	int fd; /* owned: by which others map them; -1: they cannot */
};

/* As backend_program_ops have it; on the ferry's device. */
MUST_CHECK int weights_new(struct ferry *ferry, uint64_t bytes, struct backend_weights **ret);
MUST_CHECK int weights_put(struct backend_weights *weights, uint64_t offset, const void *from,
			   uint64_t bytes);
void weights_free(struct backend_weights *weights); /* NULL is fine */

#endif
