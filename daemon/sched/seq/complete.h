/* complete.h - the end of an entry: its completion, exactly once, in lane order, and whoever waits
 * for it. */
#ifndef COPPICED_COMPLETE_H
#define COPPICED_COMPLETE_H

#include "daemon/sched/core/core.h"

#define OUTCOME_OK ((struct outcome){0})

static inline struct outcome outcome_bad(int status, enum abi_reason reason, uint32_t where)
{
	return (struct outcome){.status = status, .reason = reason, .where = where};
}

/* Completes the lane's entry `accepted`: writes the completion, advances done, lets the stream go
 * on that waits for the entry's word, wakes sleepers, rings the completion descriptor if it was
 * asked for. Never blocks. */
void complete_entry(struct sched_core *core, struct sched_lane *lane,
		    const struct outcome *outcome);

/* That entry is done in a moment: whoever sleeps until it is gets up, so as to see it at once. */
void complete_soon(struct sched_core *core, struct sched_lane *lane);

#endif
