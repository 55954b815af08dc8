/*
 * away.h - lanes that are likely to ask again: whose last decode step, or tokens of a program,
 * ended less than a budget ago, and whose next one is not there. The scheduler's thread alone.
 *
 * What all ask for is what is there and theirs. Where that is more than fits, some are always away
 * while others' steps fit, and turns would never be asked for. Of one user alone nobody notes it.
 * Those who do not come are forgotten where it matters: each step pays for a sum, and no more.
 */
#ifndef COPPICED_AWAY_H
#define COPPICED_AWAY_H

#include "users.h"
#include "proto/clock.h"

static inline void away_end(struct sched_core *core, struct sched_lane *lane)
{
	if (!lane->is_away)
		return;
	lane->is_away = false;
	core->away_alone_ns -= lane->away_alone_ns;
}

/* Its step is over; the next is thought to be as the last. */
static inline void away_begin(struct sched_core *core, struct sched_lane *lane)
{
	away_end(core, lane);
	if (!users_are_several(core))
		return;
	lane->is_away = true;
	lane->away_alone_ns = (int64_t)lane->step.alone_ns;
	lane->away_pairs_ns = lane->step.pairs_ns;
	core->away_alone_ns += lane->away_alone_ns;
}

/* Forgets those who do not come. */
static inline void away_look(struct sched_core *core)
{
	uint64_t for_ns = core->config->batch_budget_ms * NS_PER_MS;
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &core->lanes, link)
		if (lane->pace.done_ns + for_ns < core->now_ns)
			away_end(core, lane);
}

#endif
