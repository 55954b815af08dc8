/*
 * core.h - what every part of the scheduler needs: whom it works for, the time, and all lanes and
 * sequences. The scheduler's thread alone, but for `failed`.
 *
 * Everything else a part keeps is its own, in a struct beside its functions, with a pointer to
 * this. What is one part's and stands here all the same, last, is asked for where that part's
 * struct is out of reach: by an entry's end, or a sequence's, which have a core alone.
 */
#ifndef COPPICED_CORE_H
#define COPPICED_CORE_H

#include "daemon/backend/ledger.h"
#include "proto/clock.h"
#include "arena_number.h"
#include "handles.h"
#include "lane.h"
#include "lanes_clock.h"
#include "requests.h"
#include "slowness.h"
#include "status.h"

struct sched_core {
	const struct config *config; /* borrowed */
	const struct backend_ops *ops; /* borrowed */
	struct backend *backend; /* borrowed */
	struct ledger *_Atomic ledger; /* borrowed; NULL: none is kept, or not yet */
	struct store *store; /* owned */
	struct requests requests;
	uint64_t (*clock)(void); /* a test's; NULL: CLOCK_MONOTONIC, in nanoseconds */
	uint64_t now_ns; /* read once a round and after each batch */
	/* When rings were looked at last, if the backend has held this thread since; else 0. */
	uint64_t deaf_since_ns;
	uint64_t next_tick_ns; /* when the store's clocks are to be looked at; 0: at once */
	uint32_t n_cores;
	bool spins; /* this thread does, and clients do, as cores are free */
	_Atomic bool failed; /* scheduler -> loop: the backend has, for good */
	bool draining; /* no new sequences */
	struct sched_status stats; /* the counters of it */
	struct handle_table seqs;
	struct sched_user_list users; /* owned by their sessions */
	/* turns.h: what each user has had at least, and who has had most */
	double had_ns, most_had_ns;
	/* how much longer than modelled batches take, passes of programs' tokens, and attention in
	 * passes that are not nearly all weights */
	struct slowness batches, passes, attention;
	struct sched_lane_queue lanes; /* all, oldest first; borrowed from sessions */
	struct step_queues steps; /* the same lanes, by the state of their steps */
	uint64_t n_steps; /* that were checked, ever: seq->last_step */
	struct lanes_clock lanes_clock;
	int64_t away_alone_ns; /* core/away.h: what the next steps of those who are away may take */
	uint64_t summary_bytes; /* seq/summary.c: of all sequences */
};

/* The backend can no more: the daemon is to end. */
void core_fail(struct sched_core *core);

static inline uint64_t core_clock(const struct sched_core *core)
{
	return core->clock ? core->clock() : clock_now_ns();
}

/* Reads the lanes' clock. Not inlined, so that who need not saves no registers for it. */
void core_read_lanes_clock(struct sched_core *core);

/* Before what may take long: many quick ones before it are nobody's, but nothing else is left
 * out. */
static inline void core_leave_out_quick(struct sched_core *core)
{
	if (lanes_clock_has_quick(&core->lanes_clock, core->stats.entries))
		core_read_lanes_clock(core);
}

/* NULL: it has none of that number. */
static inline const struct sched_arena *session_arena(const struct sched_core *core,
						      const struct sched_session *session,
						      uint32_t number)
{
	uint32_t place = arena_place(number);

	if (place > core->config->max_arenas || !session->arenas[place].base ||
	    session->arenas[place].number != number)
		return NULL;
	return &session->arenas[place];
}

static inline bool core_failed(const struct sched_core *core)
{
	return atomic_load(&core->failed);
}

#endif
