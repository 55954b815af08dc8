/* step_check.h - a step entry: every handle, count, offset and stride checked, addresses
 * resolved. */
#ifndef COPPICED_STEP_CHECK_H
#define COPPICED_STEP_CHECK_H

#include "daemon/sched/core/core.h"

/* Checks lane->body as the body of step entry e and fills lane->step. On a fault the sequences that
 * the step rightly named lose their extension (seq_void), and the outcome says which and why. */
struct outcome step_check(struct sched_core *core, struct sched_lane *lane,
			  const struct abi_entry *e);

/* Its sequence wants prefill to attend to part of the path, and this is prefill: decode and drafts
 * are exact in any step. */
bool step_may_be_sparse(const struct step_part *part);

#endif
