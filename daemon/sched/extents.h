/* extents.h - the pool's memory, as the store takes it and gives it back; ctx is the scheduler. */
#ifndef COPPICED_EXTENTS_H
#define COPPICED_EXTENTS_H

#include "daemon/sched/verbs/scheduler.h"

/* Of a pool of so many. 0 or -ENOMEM. */
MUST_CHECK int extents_init(struct sched *s, uint32_t n);
/* Those that nobody has yet go. */
void extents_let_go_ahead(struct sched *s);
/* The store has none any more, and the backend is at nothing. */
void extents_done(struct sched *s);
/* Does not wait for what the backend is at. */
MUST_CHECK int extents_commit(void *ctx, uint32_t extent);
/* How many more there is memory for. */
uint32_t extents_left(void *ctx);
/* Once the backend is at nothing. */
void extents_release(void *ctx, uint32_t extent);
/* Those that are to go do, the backend being at nothing, or waited for. */
void extents_release_leaving(struct sched *s);
/* Weights are to have room: KV that nobody uses goes, some a round, if there is enough of it; else
 * who asks is told so, at any time. While the backend is at work none is evicted. Returns whether
 * there was anything to do. */
bool extents_make_room(struct sched *s);
/* Those that are wanted ahead get memory, and those that are not any more give it up. */
void extents_look(struct sched *s);

#endif
