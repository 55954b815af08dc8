/*
 * batch_chosen.h - jobs of chosen blocks (backend_job.chosen): what the device makes their
 * schedules from, and the launches.
 */
#ifndef COPPICE_CUDA_BATCH_CHOSEN_H
#define COPPICE_CUDA_BATCH_CHOSEN_H

#include "proto/must_check.h"
#include "batch_impl.h"
#include "kernels/cuda/attend/chosen.h"

/* A job of chosen blocks as it is being launched: addresses on the device. */
struct chosen_job {
	struct device_choose choose;
	uint32_t n_work_tiles; /* of a head */
	uint32_t n_heads; /* of a launch */
	uint64_t n_kv_tiles; /* of all heads */
};

/* Can it be taken as it is? */
bool chosen_takes(struct batch *b, const struct backend_job *job);
/* Its tables go to the device; before tables_make. 0, -ENOMEM, -EIO. */
MUST_CHECK int chosen_ready(struct upload *u, const struct backend_job *job,
			    struct chosen_job *ret);
/* attend: shape, rows and pool. */
MUST_CHECK int chosen_launch(struct upload *u, const struct chosen_job *chosen,
			     struct device_attend *attend);

#endif
