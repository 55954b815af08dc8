/*
 * lanes.h - the scheduler's lanes, the compact table by which it polls their rings, and what it
 * takes from them: an entry at a time, copied once, then done at once or, a step, checked and
 * given to input_wait.
 */
#ifndef COPPICED_LANES_H
#define COPPICED_LANES_H

#include "daemon/sched/core/core.h"
#include "input_wait.h"

/* What polling reads of a lane: a word of the client's, and the ticket we have taken from it
 * last. */
struct lane_poll {
	const _Atomic uint64_t *submitted;
	uint64_t accepted;
	struct sched_lane *lane;
};

struct lanes {
	struct sched_core *core; /* borrowed */
	struct input_wait *input_wait; /* borrowed */
	/* owned, [n]: what a round reads of idle lanes, close together */
	struct lane_poll *polls;
	uint32_t n;
	uint32_t first; /* of them, in the next round: one whose user had had enough of this */
	uint64_t n_rounds;
	bool several_users; /* in this round, of which the rest is, if there are */
	bool some_had_enough;
	bool some_left; /* at the last look a lane had more, behind an entry that may be long */
	uint64_t last_serial;
};

void lanes_done(struct lanes *l);
/* shared and notify_fd are lent until lane_remove. 0 or -ENOMEM. */
MUST_CHECK int lane_add(struct lanes *l, struct sched_session *session, uint32_t number,
			struct abi_lane *shared, int notify_fd);
/* Its sequences are closed. Entries not accepted yet are nobody's. */
void lane_remove(struct lanes *l, struct sched_lane *lane);
/* Every entry that the client has published, whoever waits for it, completes with this: the lane
 * ends, or the backend has. Its step must not be STREAMING. */
void lane_shut_down(struct lanes *l, struct sched_lane *lane, struct outcome outcome);

/* Serves every lane that has something, a bounded number of entries, until it holds a step; where
 * there are several users, only so many of one's. Returns whether one had. */
bool lanes_serve(struct lanes *l);
/* Another look in the same round: what a user has had of it counts, so nobody has more of it by
 * looks. */
bool lanes_serve_again(struct lanes *l);
/* Is there an entry that nobody has looked at? For the last look before sleeping. */
bool lanes_waiting(const struct lanes *l);
/* Lanes with an entry in the last 10 ms. */
uint32_t lanes_active(const struct lanes *l);

#endif
