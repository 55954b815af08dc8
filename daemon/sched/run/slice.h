/*
 * slice.h - what of a step a batch takes, from where the last slice ended: as many rows as the
 * budget has time for.
 *
 * A prefill step goes part by part, and by prefill_rows where these take less than the budget. Of
 * decode that was cut a slice has rows of as many parts as fit: what these share is read once. A
 * slice has one row at least, and as many that reading their path does not take longer than their
 * arithmetic: else most of the backend's time would go to reading the same again.
 */
#ifndef COPPICED_SLICE_OF_STEP_H
#define COPPICED_SLICE_OF_STEP_H

#include "job.h"

/* What rows find in the segments of their paths is kept until it is merged: of a slice, or of a
 * pass on a backend that computes on the host's own memory, so much. */
#define SLICE_PARTIALS_BYTES (UINT64_C(64) << 20)

/* The same of a row that sees so many tokens. */
static inline uint64_t slice_partials_bytes(const struct work_shape *shape, uint32_t segment_tokens,
					    uint64_t n_tokens)
{
	return (n_tokens / segment_tokens + 2) * shape->n_q_heads * (shape->head_dim + 2) *
	       sizeof(float);
}

/* The next slice of the lane's step, which is the job's only one. 0 or -ENOMEM. */
MUST_CHECK int slice_take(struct slice *slice, struct plans *p, const struct batch_job *job,
			  const struct sched_lane *lane);
void slice_done(struct slice *slice);

#endif
