/*
 * plan_ahead.h - plans made ahead. A plan takes in tokens as long as it has room for them; the next
 * one takes longer to make than a layer to compute. So a thread makes it meanwhile, of the tokens
 * that there are when it begins, and it takes in those that have come since.
 *
 *      advance says soon --plan_ahead_start--> thread: plan, prepare
 *                                              --plan_ahead_take--> a later job of the same lanes
 *
 * So is the plan for the next token of who has just been given a prompt's pass, and that for a pass
 * whose rows are still to come.
 * One at a time. Where the thread is late, or what it made fits no more, the batch makes its plan
 * itself.
 */
#ifndef COPPICED_PLAN_AHEAD_H
#define COPPICED_PLAN_AHEAD_H

#include "plan_cache.h"

#include "daemon/base/aside.h"

enum plan_ahead_state { PLAN_AHEAD_NONE, PLAN_AHEAD_MAKING, PLAN_AHEAD_MADE };

struct plan_ahead {
	struct sched_core *core; /* borrowed */
	struct plan_cache *cache; /* borrowed */
	_Atomic(enum plan_ahead_state) state;
	/* owned; the thread's while it makes the plan, else the scheduler's; NULL: none yet */
	struct plan *plan;
	uint64_t begun; /* when it was asked for, in uses of plans */
	struct aside aside; /* whose thread that is */
};

/* All below: the scheduler's thread. */

void plan_ahead_init(struct plan_ahead *a, struct sched_core *core, struct plan_cache *cache);
/* The plan that is to follow this one of a job of the batch that has just been submitted: the
 * caller makes its tree, then starts it. NULL: one is being made, or has been for others, who have
 * not had their turn since; or there can be none. */
struct plan *plan_ahead_next(struct plan_ahead *a, const struct plan *plan);
void plan_ahead_start(struct plan_ahead *a);
/* Is there one that nobody has taken? */
static inline bool plan_ahead_is_made(const struct plan_ahead *a)
{
	return atomic_load(&a->state) == PLAN_AHEAD_MADE;
}

static inline bool plan_ahead_is_making(const struct plan_ahead *a)
{
	return atomic_load(&a->state) == PLAN_AHEAD_MAKING;
}

/* What was made, if it fits, in the place of what was used longest ago; how many tokens later the
 * sequences are. NULL: it does not. */
struct plan *plan_ahead_take(struct plan_ahead *a, const struct plan_key *key, uint32_t *ret_later);
/* The model is about to go. Waits for the thread if that is at work. */
void plan_ahead_forget_model(struct plan_ahead *a, const struct sched_model *model);
void plan_ahead_done(struct plan_ahead *a);

#endif
