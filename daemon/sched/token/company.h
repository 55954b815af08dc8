/* company.h - whom a pass waits for, until when, and whose that wait is. */
#ifndef COPPICED_COMPANY_H
#define COPPICED_COMPANY_H

#include "passes.h"

/* Until when the next pass of the model is to wait for lanes that may be expected; not later than
 * now: it begins. */
uint64_t company_until_ns(const struct passes *p, const struct sched_model *model);
/* The pass begins that was held until p->held_until_ns at most: the wait is theirs whom others
 * waited for. */
void company_charge(struct passes *p);
/* Has any other lane, of whatever model, asked for anything a moment ago, or does it now? */
bool company_is_there(const struct passes *p, const struct sched_lane *of);
/* Does anybody wait for tokens of another model, or had he a pass of it a moment ago? */
bool company_is_of_others(const struct passes *p, const struct sched_model *model);
/* The same of users beside the one whose lane is the first of the job: they may cut in. */
bool company_may_cut_in(const struct passes *p);
/* The users of the lanes of the job have come. */
void company_came(struct passes *p);

#endif
