/*
 * evicted.h - live tokens of sequences, and what the store evicts to have room for them: that is
 * counted for the session whose tokens they are, and said in the log at level info.
 */
#ifndef COPPICED_SEQ_EVICTED_H
#define COPPICED_SEQ_EVICTED_H

#include "daemon/sched/core/core.h"

/* As store_seq_extend. */
MUST_CHECK int seq_extend(struct sched_core *core, struct sched_seq *seq, const uint32_t *tokens,
			  uint32_t n, bool draft);
/* Says what has not been said yet of a session that ends. */
void evicted_say(const struct sched_core *core, struct sched_session *session);

#endif
