/* estimate_pages.h - an estimate from the pool's pages, start to end: where the path's tokens are, Q on the device, masses back. */
#ifndef COPPICE_CUDA_ESTIMATE_PAGES_H
#define COPPICE_CUDA_ESTIMATE_PAGES_H

#include "batch.h"

/* Grows, and is kept. */
struct estimate_room {
	struct batch_buffer host, device;
};

/* As backend_ops.estimate. */
int estimate_room_run(struct estimate_room *room, struct batch *b,
		      const struct backend_estimate *estimate, float *ret_mass);
/* Nothing may be running on it any more. */
void estimate_room_done(struct estimate_room *room);

#endif
