/* wait.h - SEQ_WAIT: sequences whose prompt somebody else is computing. Answered late. */
#ifndef COPPICED_WAIT_H
#define COPPICED_WAIT_H

#include "daemon/sched/sched_impl.h"

/* Answers at once where nothing is pending, else keeps the request. -EBUSY: the sequence waits
 * already. Takes the request over only when it returns 0. */
int wait_begin(struct sched *s, struct sched_seq *seq, struct sched_request *request);
/* Answers what has been decided, so many of a crowd in a round, or is over time. Cheap when no
 * epoch has passed and no deadline. */
void wait_look(struct sched *s);
/* The sequence goes: its wait, if any, comes back with -ECANCELED. */
void wait_cancel(struct sched *s, struct sched_seq *seq);
/* When to look again at the latest, UINT64_MAX: nothing waits. */
uint64_t wait_deadline_ns(const struct sched *s);

#endif
