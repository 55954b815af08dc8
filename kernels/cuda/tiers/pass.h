/*
 * pass.h - attention in passes: rows whose KV is in the pool a part at a time. A pass leaves O and
 * LSE in memory of the device's; several passes' are folded at once, behind the last of them on the
 * batches' stream.
 */
#ifndef COPPICE_CUDA_PASS_H
#define COPPICE_CUDA_PASS_H

#include "tier.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/queue.h"

struct pass {
	/* owned, device: states, then Q of all rows, then O of so many passes, then their LSE */
	char *at;
	uint64_t bytes;
	struct device_part parts[FOLD_PARTS];
	uint32_t n_parts; /* that wait to be folded */
	bool had; /* others were */
	bool sparing; /* there was no memory for several */
	struct backend_io *io; /* owned: of a pass' queries */
	bool *there; /* owned, of a row's begin: its query's Q is in that memory */
	uint32_t io_room, there_room;
	uint64_t ahead; /* an estimate's rows_id, whose Q is there, of as many rows; 0: none */
	uint32_t ahead_rows;
	struct backend_job *jobs; /* owned: what is submitted */
	uint32_t jobs_room;
	void *end; /* owned event: of the last pass */
	uint64_t id; /* of that; 0: none is under way */
};

void pass_done(struct pass *p); /* one that is all zero is fine */
/* An estimate's Q comes to where passes of the same rows want it. 0, -ENOMEM, -EIO. */
MUST_CHECK int pass_bring(struct pass *p, struct queue *q, const struct backend_estimate *estimate,
			  uint64_t *ret_q);
/* The jobs to be submitted for these, as many. 0, -ENOMEM, -EIO. */
MUST_CHECK int pass_begin(struct pass *p, struct queue *q, const struct backend_batch *batch,
			  const struct backend_pass *pass, const struct backend_job **ret);
/* They were submitted, as id. */
MUST_CHECK int pass_end(struct pass *p, struct queue *q, const struct backend_batch *batch,
			const struct backend_pass *pass, uint64_t id);
/* A last pass is complete when its states are folded too, which comes behind its batch. */
void pass_completed(struct pass *p, uint64_t *id);

#endif
