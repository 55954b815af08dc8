/*
 * fit.h - which decode steps go now, where not all of them fit one batch.
 *
 * All that fit go together. Where several users ask, those have to fit with them who have just had
 * a step and are not there again yet (core/away.h): else a crowd that does not fit would go by
 * halves, and leave others no turn. What does not fit goes in turns of users, and of each user's
 * sessions: who has had least of the backend's time comes first, and the batch ends where the
 * budget does, or where it would be the turn of one who has nothing left: he is there again soon,
 * and others' work would be in his way. A step that takes more than the budget by itself is cut,
 * and goes in slices.
 */
#ifndef COPPICED_FIT_H
#define COPPICED_FIT_H

#include "batch.h"

#include "daemon/sched/core/away.h"
#include "daemon/sched/core/turns.h"

struct candidate {
	struct sched_lane *lane;
	struct batch_job *job;
	uint32_t place; /* in the batch as it was */
	double ns; /* what it adds to those before it */
	double longest_ns; /* of that, to read and plan one path */
	/* what its session, and its user, will have had when it is its turn */
	double session_ns, user_ns;
	bool goes;
};

struct fit {
	struct batch *batch; /* borrowed */
	struct candidate *candidates; /* owned */
	uint32_t n, room;
	uint64_t number; /* counts */
	bool left_some; /* the last batch of decode did not have all that was there */
};

/* Leaves in the batch what goes now; the others' steps are runnable, or wait for a turn as slices.
 * The batch may be empty then. */
void fit_batch(struct fit *f);
/* False: all of the batch fits, whatever it shares, with those who are away. */
static inline bool fit_is_needed(const struct batch *b)
{
	return b->n_jobs > 0 &&
	       !budget_allows(b->core, b->alone_ns + (double)b->core->away_alone_ns);
}
void fit_done(struct fit *f);

#endif
