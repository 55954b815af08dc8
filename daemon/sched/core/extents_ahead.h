/*
 * extents_ahead.h - extents that have memory and that nobody has yet: what a driver takes for it
 * nobody waits for.
 *
 * As many as were lent in a row of late: all sequences of a step come to a page's end with the same
 * token. A thread gets them memory, one after the other, those first that the store lends first.
 * When none has been lent for a while, all go.
 */
#ifndef COPPICED_EXTENTS_AHEAD_H
#define COPPICED_EXTENTS_AHEAD_H

#include "daemon/base/aside.h"
#include "proto/clock.h"
#include "core.h"

#define EXTENTS_AHEAD_NONE UINT32_MAX
#define EXTENTS_AHEAD_IDLE_NS NS_PER_S

struct extents_ahead {
	struct sched_core *core; /* borrowed */
	uint32_t n_ready; /* which ones the store knows */
	uint32_t most; /* 0: this backend has none ahead */
	uint32_t n_wanted;
	uint32_t n_in_a_row; /* that were lent */
	uint64_t lent_ns; /* when the last one was */
	bool making; /* this one, which is the thread's while it is at it, as what comes of it */
	uint32_t extent;
	int made; /* 0 or -errno */
	struct aside aside; /* whose thread that is */
};

/* All below: the scheduler's thread. Of a pool of so many; all zero: none ever is ahead. */
void extents_ahead_init(struct extents_ahead *a, struct sched_core *core, uint32_t n);
void extents_ahead_done(struct extents_ahead *a);
/* One more is lent now. */
void extents_ahead_count(struct extents_ahead *a);
/* Is this one ready? It is its caller's then. Waits where it is in the making. */
bool extents_ahead_take(struct extents_ahead *a, uint32_t extent);
/* Waits for the one in the making: what is ahead is ready then. */
void extents_ahead_settle(struct extents_ahead *a);
/* One that is ready is to go: that which is lent last. EXTENTS_AHEAD_NONE: none is. */
uint32_t extents_ahead_give(struct extents_ahead *a);

static inline uint32_t extents_ahead_n(const struct extents_ahead *a)
{
	return a->n_ready + a->making;
}

/* When all are to go. */
static inline uint64_t extents_ahead_deadline_ns(const struct extents_ahead *a)
{
	return extents_ahead_n(a) > 0 ? a->lent_ns + EXTENTS_AHEAD_IDLE_NS : UINT64_MAX;
}

/* Is there anything to look at? */
static inline bool extents_ahead_is_due(const struct extents_ahead *a)
{
	return a->n_ready != a->n_wanted || a->making ||
	       a->core->now_ns >= extents_ahead_deadline_ns(a);
}

/* What the thread has made is ready. Returns whether one more is to be made. */
bool extents_ahead_look(struct extents_ahead *a);
/* The next that the store would lend gets memory, which the ledger has room for. Where there is
 * none, or no room, no more are wanted for now. */
void extents_ahead_make(struct extents_ahead *a);

#endif
