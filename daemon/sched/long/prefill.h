/* prefill.h - prefill's turn: a slice of a step whose rows or path are too many for one batch. */
#ifndef COPPICED_PREFILL_H
#define COPPICED_PREFILL_H

#include "daemon/sched/run/batch.h"
#include "streamed.h"

/* Whether there may be one, which is asked in every round. */
static inline bool prefill_waits(const struct step_queues *steps)
{
	return steps->n[STEP_WAITING_TURN] + steps->n[STEP_STREAMING] > 0;
}

/* The slice whose turn it is into the batch, which is empty. False: there is none, or it is of a
 * step that is streamed: that is no batch, and has begun. */
bool prefill_choose(struct streamed *streamed, struct batch *batch);

#endif
