/* company.h - whom a pass waits for, and until when. */
#ifndef COPPICED_COMPANY_H
#define COPPICED_COMPANY_H

#include "passes.h"

/* Until when the next pass of the model is to wait for lanes that may be expected; not later than
 * now: it begins. */
uint64_t company_until_ns(const struct passes *p, const struct sched_model *model);

#endif
