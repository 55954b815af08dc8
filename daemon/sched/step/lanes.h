/* lanes.h - the scheduler's lanes, and the compact table by which it polls their rings. */
#ifndef COPPICED_LANES_H
#define COPPICED_LANES_H

#include "daemon/sched/sched_impl.h"

/* shared and notify_fd are lent until lane_remove. 0 or -ENOMEM. */
int lane_add(struct sched *s, struct sched_session *session, uint32_t number,
	     struct abi_lane *shared, int notify_fd);
/* Its sequences are closed. Entries not accepted yet are nobody's. */
void lane_remove(struct sched *s, struct sched_lane *lane);
/* Every entry that the client has published, whoever awaits it, completes with this: the lane ends,
 * or the backend has. */
void lane_shut_down(struct sched *s, struct sched_lane *lane, struct outcome outcome);

/* Serves every lane that has something. Returns whether one had. */
bool lanes_serve(struct sched *s);
/* Is there an entry that nobody has looked at? For the last look before sleeping. */
bool lanes_waiting(const struct sched *s);
/* Lanes with an entry in the last 10 ms. */
uint32_t lanes_active(const struct sched *s);

#endif
