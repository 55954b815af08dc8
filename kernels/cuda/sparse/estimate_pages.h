/* estimate_pages.h - an estimate from the pool's pages, start to end: where the path's tokens are,
 * Q on the device, masses back. */
#ifndef COPPICE_CUDA_ESTIMATE_PAGES_H
#define COPPICE_CUDA_ESTIMATE_PAGES_H

#include "sparse.h"
#include "kernels/backend.h"
#include "estimate.h"

#include "kernels/plan/select.h"

/* Grows, and is kept. */
struct estimate_room {
	struct queue_buffer host, device;
};

/* What the device is told of it wherever its keys come from; how many masses it gives. */
struct device_estimate estimate_on_device(const struct backend_estimate *estimate);
size_t estimate_n_masses(const struct backend_estimate *estimate);

/* What is chosen by, and what is added to. */
struct estimate_choice {
	const struct select_config *config;
	const struct select_chunk *chunk;
	struct select_shares *shares;
};

/* As backend_ops.choose, of an estimate without a summary. */
MUST_CHECK int estimate_room_choose(struct estimate_room *room, const struct sparse *with,
				    const struct backend_estimate *estimate,
				    const struct estimate_choice *choice,
				    const uint64_t **ret_kept);
/* As backend_ops.estimate. */
MUST_CHECK int estimate_room_run(struct estimate_room *room, const struct sparse *with,
				 const struct backend_estimate *estimate, const float **ret_mass);
/* Nothing may be running on it any more. */
void estimate_room_done(struct estimate_room *room);

#endif
