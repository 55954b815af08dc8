/*
 * doorbell.h - what a sleeping scheduler waits for: edges on eventfds, the loop's and one of each
 * session.
 *
 * Edges, because the daemon never reads a descriptor that a client holds. A bell rung while nobody
 * sleeps makes the next sleep end at once; that is all.
 */
#ifndef COPPICED_BELLS_H
#define COPPICED_BELLS_H

#include "daemon/sched/sched_impl.h"

int bells_init(struct sched *s); /* 0 or -errno */
void bells_done(struct sched *s);
/* fd is lent until bells_remove. 0 or -errno. */
int bells_add(struct sched *s, int fd);
void bells_remove(struct sched *s, int fd);
/* Until a bell or the deadline (CLOCK_MONOTONIC). */
void bells_wait(struct sched *s, uint64_t deadline_ns);
/* Any thread: rings the loop's bell. */
void bells_ring(struct sched *s);

#endif
