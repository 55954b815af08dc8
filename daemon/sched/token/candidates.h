/* candidates.h - who may go with a pass: p->candidates. */
#ifndef COPPICED_CANDIDATES_H
#define COPPICED_CANDIDATES_H

#include "passes.h"

/* All that wait for the model, in turn; foreseen: with those who will, once the pass under way has
 * ended. 0 or -ENOMEM. */
MUST_CHECK int candidates_find(struct passes *p, const struct sched_model *model, bool foreseen);
/* Of decode, or of prompts; NULL: there is none. */
const struct pass_candidate *candidates_first(const struct passes *p, bool decode);
/* Tokens of an entry that the pass under way does not have. */
uint32_t candidate_left_behind(const struct sched_lane *lane);

#endif
