/* sched_impl.h - the scheduler's own state, for the files that are its parts. The scheduler's
 * thread alone, but where it says otherwise. */
#ifndef COPPICED_SCHED_IMPL_H
#define COPPICED_SCHED_IMPL_H

#include "daemon/sched/run/batch.h"
#include "daemon/sched/core/requests.h"
#include "daemon/sched/long/streamed.h"
#include "sched.h"
#include "daemon/sched/core/state.h"
#include "daemon/sched/verbs/tiers.h"

#include <pthread.h>

struct sched {
	const struct config *config; /* borrowed */
	const struct backend_ops *ops; /* borrowed */
	struct backend *backend; /* borrowed */
	struct abi_board *board; /* borrowed; this thread writes its words */
	struct store *store; /* owned */
	struct mailbox mailbox;
	pthread_t thread;
	bool started;
	_Atomic bool stopping; /* loop -> scheduler */
	_Atomic bool failed; /* scheduler -> loop */
	_Atomic uint64_t rounds; /* scheduler -> loop */

	uint64_t (*clock)(void); /* CLOCK_MONOTONIC, in nanoseconds; a test may have another */
	uint64_t now_ns; /* read once a round and after each batch */
	uint64_t active_ns; /* when there last was something to do */
	uint32_t n_cores;

	struct sched_session_list sessions; /* owned */
	struct sched_model_list models; /* owned */
	struct sched_session_list ended_sessions; /* owned: whose device arenas may still be open */
	struct sched_lane_queue lanes; /* borrowed from sessions */
	struct sched_lane_queue awaited; /* some of them */
	struct sched_wait_queue waits; /* borrowed */
	struct handle_table seqs;
	/* owned, [n_lanes]: what a round reads of idle lanes, close together */
	struct lane_poll *polls;
	uint32_t n_sessions, n_lanes;
	uint32_t n_parked; /* lanes whose step could run */
	/* when to look at the first of those awaited; UINT64_MAX: at none */
	uint64_t await_look_ns;
	uint64_t await_since_ns; /* since when the newest of them is awaited */
	uint64_t step_mark;
	uint64_t wait_epoch; /* store_epoch when looking at all waits last began */
	uint32_t n_waits, n_waits_left; /* all; and those that have not been looked at since */
	uint64_t wait_due_ns; /* when to look for those over time; UINT64_MAX: there are none */
	uint64_t next_tick_ns;
	bool draining;
	bool told_time_slices; /* the warning about clients without MPS was given */
	bool prefill_turn; /* the last batch was decode */
	/* owned epoll descriptor: the loop's bell and those of the sessions, edges only */
	int bells;
	int bell_fd; /* owned eventfd: the loop's */
	uint64_t spin_ns, spin_look_ns; /* how long to spin; when to decide anew */

	bool hold_stale; /* something happened that hold_choose must look at */
	uint64_t hold_until_ns; /* then it must look again; UINT64_MAX: nothing is held */
	uint64_t last_meeting, last_lane;

	struct sched_tiers tiers;
	struct passes passes;
	struct batch batch;
	struct sched_status stats; /* the counters of it */
};

/* A scheduler without a thread, for whoever goes its rounds himself (tests): all but sched_new's
 * last step. */
int sched_make(const struct config *config, const struct backend_ops *ops, struct backend *backend,
	       struct abi_board *board, struct sched **ret);
/* The backend can no more: the daemon is to end. */
void sched_fail(struct sched *s);
/* One round; returns whether there was anything to do. */
bool sched_round(struct sched *s);

#endif
