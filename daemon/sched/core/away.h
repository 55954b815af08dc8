/*
 * away.h - lanes that are likely to ask again: whose last decode step, or tokens of a program,
 * ended less than a budget ago, and whose next one is not there. The scheduler's thread alone.
 *
 * What all ask for is what is there and theirs. Where that is more than fits, some are always away
 * while others' steps fit, and turns would never be asked for.
 */
#ifndef COPPICED_AWAY_H
#define COPPICED_AWAY_H

#include "core.h"

static inline void away_end(struct sched_core *core, struct sched_lane *lane)
{
	if (!lane->is_away)
		return;
	lane->is_away = false;
	TAILQ_REMOVE(&core->away, lane, away_link);
	core->away_alone_ns -= lane->away_alone_ns;
	if (TAILQ_EMPTY(&core->away))
		core->away_alone_ns = 0;
}

/* Its step is over; the next is thought to be as the last. */
static inline void away_begin(struct sched_core *core, struct sched_lane *lane)
{
	away_end(core, lane);
	lane->is_away = true;
	lane->away_alone_ns = lane->step.alone_ns;
	lane->away_pairs_ns = lane->step.pairs_ns;
	core->away_alone_ns += lane->away_alone_ns;
	TAILQ_INSERT_TAIL(&core->away, lane, away_link);
}

/* Forgets those who do not come. */
static inline void away_look(struct sched_core *core)
{
	uint64_t for_ns = core->config->batch_budget_ms * UINT64_C(1000000);
	struct sched_lane *lane;

	while ((lane = TAILQ_FIRST(&core->away)) && lane->pace.done_ns + for_ns < core->now_ns)
		away_end(core, lane);
}

#endif
