/*
 * foresee.h - tables that are made before their batch is submitted, while the one before it computes: those of the same rows a layer
 * on, of a token whose K and V go where they went and whose Q and O are where they were. Submitting it then is a comparison
 * and a call.
 */
#ifndef COPPICE_CUDA_FORESEE_H
#define COPPICE_CUDA_FORESEE_H

#include "batch_impl.h"

/* Tables in a frame. All zero: there are none. */
struct foreseen {
	uint64_t id; /* of the batch that they are for; 0: there are none */
	struct upload upload;
	struct device_inbound in;
	uint64_t bus_ns;
	struct backend_io *io; /* owned, [n_io]: what they were made of */
	struct work_slice *slots; /* owned, [n_slots]: the io's, one after the other */
	uint32_t n_io, n_slots;
	uint32_t io_room, slots_room;
};

/* A launch stands for the job's next layer, which the frame of batch last_id + 1 has room for. upload: the job's own. */
void foresee_make(struct batch *b, const struct upload *upload, const struct backend_job *job,
		  uint32_t layer);
/* The batch is what tables are there for, as far as they depend on it; what stands for it has been looked at elsewhere. */
bool foresee_holds(const struct batch *b, const struct backend_batch *batch);
/* Of a batch that foresee_holds: the frame as it has been filled, and what a call says. */
struct device_inbound foresee_take(struct batch *b, struct upload *ret);
void foresee_done(struct foreseen *f);

#endif
