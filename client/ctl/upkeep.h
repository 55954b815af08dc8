/*
 * upkeep.h - what an administrator does: room in the pool, and an end to new work.
 */
#ifndef CTL_UPKEEP_H
#define CTL_UPKEEP_H

#include "ctl.h"

/* Verbs. 0, or -errno with ctl->call.error. */
MUST_CHECK int upkeep_evict(struct ctl *ctl);
MUST_CHECK int upkeep_drain(struct ctl *ctl);

#endif
