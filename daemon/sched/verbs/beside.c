/*
 * beside.c - what a pass has is named by the lanes in it; whose session has none of those may do
 * what it likes between two segments, to its own memory and models too, and who has some may do
 * what does not take of these. While the backend is at work its memory stays where it is, as
 * drivers may wait for all work to end.
 */
#include "beside.h"

bool beside_pass(const struct sched *s, const struct sched_request *rq)
{
	(void)s;
	(void)rq;
	return true;
}

bool beside_segments(const struct sched *s, const struct sched_request *rq)
{
	(void)rq;
	return !s->passes.in_flight;
}

bool beside_segments_of_others(const struct sched *s, const struct sched_request *rq)
{
	const struct sched_lane *lane;

	if (s->passes.in_flight)
		return false;
	TAILQ_FOREACH (lane, &s->core.steps.lanes[STEP_IN_PASS], state_link)
		if (lane->session == rq->session)
			return false;
	return true;
}
