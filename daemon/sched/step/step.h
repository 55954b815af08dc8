/* step.h - a step entry: every handle, count, offset and stride checked, addresses resolved; and
 * its end. */
#ifndef COPPICED_STEP_H
#define COPPICED_STEP_H

#include "daemon/sched/seq/complete.h"
#include "daemon/sched/sched_impl.h"

/* Checks lane->body as the body of step entry e and fills lane->step. On a fault the sequences that
 * the step rightly named lose their extension (seq_void), and the outcome says which and
 * why. */
struct outcome step_check(struct sched *s, struct sched_lane *lane, const struct abi_entry *e);

/* Its sequence wants prefill to attend to part of the path, and this is prefill: decode and drafts
 * are exact in any step. */
bool step_may_be_sparse(const struct step_part *part);

/* The parked step's layer is done for all its rows: the entry completes now, so that the client
 * need not wait for step_finish, which must follow before anything else is served. Tokens that then
 * find no memory to be published in are void, as the sequence's next entry says. */
void step_tell(struct sched *s, struct sched_lane *lane);

/* The parked step's layer is done for all its rows: extensions advance, tokens are published after
 * the last layer, the entry completes if it has not. */
void step_finish(struct sched *s, struct sched_lane *lane);

/* The parked step ends with this outcome and its extensions are void. */
void step_fail(struct sched *s, struct sched_lane *lane, struct outcome outcome);

/* The same, but a step that is awaited by a word ends only when that is there. Nothing of the step
 * is used any more. */
void step_cancel(struct sched *s, struct sched_lane *lane, struct outcome outcome);

/* If a parked step names this sequence, it is cancelled (the sequence is about to be closed). */
void step_drop(struct sched *s, struct sched_seq *seq);

#endif
