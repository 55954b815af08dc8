/* birth.h - a scheduler without a thread, for sched.c, and for whoever goes its rounds himself. */
#ifndef COPPICED_BIRTH_H
#define COPPICED_BIRTH_H

#include "daemon/sched/verbs/scheduler.h"

/* All but sched_new's last step. */
MUST_CHECK int sched_make(const struct config *config, const struct backend_ops *ops,
			  struct backend *backend, struct abi_board *board, struct sched **ret);
/* What is open ends. Blocks. */
void sched_unmake(struct sched *s);

#endif
