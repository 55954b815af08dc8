/*
 * vmm.h - memory behind reserved addresses of the device, by the driver's virtual memory
 * management. Its entry points are looked up at run time, so that the module loads without a
 * driver.
 */
#ifndef COPPICE_CUDA_VMM_H
#define COPPICE_CUDA_VMM_H

#include "proto/must_check.h"

#include <stdint.h>

struct vmm_driver; /* entry points */

struct vmm {
	struct vmm_driver *driver; /* owned */
	int device;
};

/* 0, -ENOMEM; -EIO: the driver lacks what it takes. */
MUST_CHECK int vmm_init(struct vmm *vmm, int device);
void vmm_done(struct vmm *vmm);

/* Addresses without memory. 0 or -ENOMEM. */
MUST_CHECK int vmm_reserve(const struct vmm *vmm, uint64_t bytes, uint64_t *ret_at);
void vmm_unreserve(const struct vmm *vmm, uint64_t at, uint64_t bytes);

/* Memory there, of whole pages of 2 MiB, for the device itself; not zeroed. 0 or -ENOMEM. Blocks.
 */
MUST_CHECK int vmm_fill(const struct vmm *vmm, uint64_t at, uint64_t bytes);
/* Such as other processes may map who have the descriptor, which is the caller's: it stays theirs
 * when it is given up here, and nobody finds other memory by it. Or -EIO. */
MUST_CHECK int vmm_fill_shared(const struct vmm *vmm, uint64_t at, uint64_t bytes, int *ret_fd);
/* So may another device that reaches this one's memory. 0 or -EIO. */
MUST_CHECK int vmm_let(const struct vmm *vmm, uint64_t at, uint64_t bytes, int device);
/* All that was filled at once. Nothing may be running on it any more. */
void vmm_empty(const struct vmm *vmm, uint64_t at, uint64_t bytes);

#endif
