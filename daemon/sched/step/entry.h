/* entry.h - what an entry asks of a sequence, done at once: extend, accept, trim, fork, sparse. */
#ifndef COPPICED_ENTRY_H
#define COPPICED_ENTRY_H

#include "daemon/sched/core/core.h"

/* lane->body is the entry's. Any kind but a step. */
struct outcome entry_do(struct sched_core *core, struct sched_lane *lane,
			const struct abi_entry *e);

#endif
