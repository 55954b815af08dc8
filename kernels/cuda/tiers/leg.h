/*
 * leg.h - attention in legs: rows whose KV is in the pool a part at a time. A leg leaves O and
 * LSE in memory of the device's; several legs' are folded at once, behind the last of them on the
 * batches' stream.
 */
#ifndef COPPICE_CUDA_LEG_H
#define COPPICE_CUDA_LEG_H

#include "tier.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/queue.h"

struct leg {
	/* owned, device: states, then Q of all rows, then O of so many legs, then their LSE */
	char *at;
	uint64_t bytes;
	struct device_part parts[FOLD_PARTS];
	uint32_t n_parts; /* that wait to be folded */
	bool had; /* others were */
	bool sparing; /* there was no memory for several */
	struct backend_io *io; /* owned: of a leg's queries */
	bool *there; /* owned, of a row's begin: its query's Q is in that memory */
	uint32_t io_room, there_room;
	uint64_t ahead; /* an estimate's rows_id, whose Q is there, of as many rows; 0: none */
	uint32_t ahead_rows;
	struct backend_job *jobs; /* owned: what is submitted */
	uint32_t jobs_room;
	void *end; /* owned event: of the last leg */
	uint64_t id; /* of that; 0: none is under way */
};

void leg_done(struct leg *p); /* one that is all zero is fine */
/* An estimate's Q comes to where legs of the same rows want it. 0, -ENOMEM, -EIO. */
MUST_CHECK int leg_bring(struct leg *p, struct queue *q, const struct backend_estimate *estimate,
			 uint64_t *ret_q);
/* The jobs to be submitted for these, as many. 0, -ENOMEM, -EIO. */
MUST_CHECK int leg_begin(struct leg *p, struct queue *q, const struct backend_batch *batch,
			 const struct backend_leg *leg, const struct backend_job **ret);
/* They were submitted, as id. */
MUST_CHECK int leg_end(struct leg *p, struct queue *q, const struct backend_batch *batch,
		       const struct backend_leg *leg, uint64_t id);
/* A last leg is complete when its states are folded too, which comes behind its batch. */
void leg_completed(struct leg *p, uint64_t *id);

#endif
