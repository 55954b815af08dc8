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

/* The next slice of the lane's step, which is the job's only one. 0 or -ENOMEM. */
MUST_CHECK int slice_take(struct slice *slice, struct plans *p, const struct batch_job *job,
			  const struct sched_lane *lane);
void slice_done(struct slice *slice);

#endif
