/* step_end.h - the end of a step: its sequences advance or are void, its entry completes. */
#ifndef COPPICED_STEP_END_H
#define COPPICED_STEP_END_H

#include "daemon/sched/core/core.h"
#include "daemon/sched/seq/complete.h"

/* The batch's decode steps are done: first all entries complete, so that no client waits for
 * another's pages, then extensions advance, and are published after the last layer. Tokens that
 * find no memory to be published in are void, as the sequence's next entry says. Reads the
 * clock. */
void steps_finish(struct sched_core *core);
/* Rows of the step's part next_part are done up to this one: it waits for its next turn, or is
 * done. chosen: what they saw of their path; all zero: everything. */
void step_finish_slice(struct sched_core *core, struct sched_lane *lane, uint32_t row_end,
		       const struct select_shares *chosen);
/* The step ends with this outcome and its extensions are void. It must not be STREAMING. */
void step_fail(struct sched_core *core, struct sched_lane *lane, struct outcome outcome);
/* The same, but a step that waits for a word ends only when that is there. Nothing of the step is
 * used any more. */
void step_cancel(struct sched_core *core, struct sched_lane *lane, struct outcome outcome);
/* The index of the sequence in its lane's step; UINT32_MAX: it is not in it. */
uint32_t step_part_of(const struct sched_seq *seq);

#endif
