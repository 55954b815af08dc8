/* sched_impl.h - a scheduler in pieces, for whoever goes its rounds himself: sched.c, and tests. */
#ifndef COPPICED_SCHED_IMPL_H
#define COPPICED_SCHED_IMPL_H

#include "daemon/sched/verbs/scheduler.h"
#include "sched.h"

/* A scheduler without a thread, for whoever goes its rounds himself (tests): all but sched_new's
 * last step. */
MUST_CHECK int sched_make(const struct config *config, const struct backend_ops *ops,
			  struct backend *backend, struct abi_board *board, struct sched **ret);
/* One round; returns whether there was anything to do. */
bool sched_round(struct sched *s);

#endif
