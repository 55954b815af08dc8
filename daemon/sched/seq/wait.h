/* wait.h - seq_wait: sequences whose prompt somebody else is computing. Answered late. */
#ifndef COPPICED_WAIT_H
#define COPPICED_WAIT_H

#include "daemon/sched/core/core.h"

/* The room of a wait. */
struct seq_wait_call {
	uint64_t seq, for_ns; /* its handle; time limit */
	struct store_match match; /* answered, with -ETIMEDOUT too */
};

struct waits {
	struct sched_core *core; /* borrowed */
	struct sched_wait_queue seqs; /* borrowed, first come first */
	uint64_t epoch; /* store_epoch when looking at all of them last began */
	uint32_t n, n_left; /* all; and those that have not been looked at since */
	uint64_t due_ns; /* when to look for those over time; UINT64_MAX: there are none */
	struct sched_wait_queue due; /* borrowed, in turns */
	uint32_t n_due_left; /* whose time is to be looked at yet, of all when that last began */
	uint64_t next_due_ns; /* of those that were */
};

void waits_init(struct waits *w, struct sched_core *core);
/* The request's room: a seq_wait_call. Answers at once where nothing is pending, else keeps the
 * request. -EBUSY: the sequence waits already. Takes the request over only when it returns 0. */
MUST_CHECK int wait_begin(struct waits *w, struct sched_seq *seq, struct sched_request *request);
/* Answers what has been decided or is over time, so many of a crowd in a round. Cheap when no epoch
 * has passed and no deadline. */
void waits_look(struct waits *w);
/* The sequence goes: its wait, if any, comes back with -ECANCELED. */
void wait_cancel(struct waits *w, struct sched_seq *seq);

/* When to look again at the latest, UINT64_MAX: nothing waits. */
static inline uint64_t waits_deadline_ns(const struct waits *w)
{
	if (w->n == 0)
		return UINT64_MAX;
	return w->n_left > 0 ? w->core->now_ns : w->due_ns;
}

#endif
