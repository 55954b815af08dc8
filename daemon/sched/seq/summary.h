/* summary.h - a sequence's summary: mean keys of its path, for sparse prefill (long/streamed.h). */
#ifndef COPPICED_SUMMARY_H
#define COPPICED_SUMMARY_H

#include "daemon/sched/core/core.h"

/* The sequence is about to go. */
void summary_drop(struct sched_core *core, struct sched_seq *seq);
/* It loses what comes behind n_tokens. */
void summary_cut(struct sched_seq *seq, uint32_t n_tokens);
/* One for so many tokens, if it fits beside the others with what the backend may take for it; or
 * -ENOMEM. */
MUST_CHECK int summary_reserve(struct sched_core *core, struct sched_seq *seq, uint32_t n_tokens);

#endif
