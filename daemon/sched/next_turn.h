/* next_turn.h - whose turn the next batch is, where not all fit one. */
#ifndef COPPICED_NEXT_TURN_H
#define COPPICED_NEXT_TURN_H

#include "daemon/sched/verbs/scheduler.h"

/* Is another user's step about to come whose turn it would be? Until s->awaited_ns, which this
 * sets; the wait is charged to that user. */
bool turn_is_awaited(struct sched *s);
/* The same of another program's tokens, before the next segment of a pass or the next pass; until
 * s->awaited_by_pass_ns. */
bool turn_is_awaited_by_pass(struct sched *s);
/* Does a slice of a long step go before decode? */
bool turn_is_prefills(struct sched *s);
/* Does a pass of programs' tokens go before layers of those whom sessions compute? */
bool turn_is_passes(const struct sched *s);

#endif
