/* lanes.c - see lanes.h. */
#include "lanes.h"

#include "daemon/sched/seq/complete.h"
#include "entry.h"
#include "step.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>

#define ACTIVE_NS UINT64_C(10000000)

int lane_add(struct sched *s, struct sched_session *session, uint32_t number,
	     struct abi_lane *shared, int notify_fd)
{
	struct lane_poll *polls = realloc(s->polls, (s->n_lanes + 1) * sizeof(*polls));
	struct sched_lane *lane = calloc(1, sizeof(*lane));
	uint8_t *body = malloc(ABI_BODY_MAX_BYTES);

	if (polls)
		s->polls = polls;
	if (!polls || !lane || !body) {
		free(body);
		free(lane);
		return -ENOMEM;
	}
	lane->body = body;
	lane->session = session;
	lane->number = number;
	lane->serial = ++s->last_lane;
	lane->shared = shared;
	lane->notify_fd = notify_fd;
	lane->word = ABI_LANE_WORDS;
	lane->poll = s->n_lanes;
	s->polls[s->n_lanes++] = (struct lane_poll){.submitted = &shared->submitted, .lane = lane};
	TAILQ_INSERT_TAIL(&s->lanes, lane, link);
	LIST_INSERT_HEAD(&session->lanes, lane, session_link);
	session->n_lanes++;
	return 0;
}

void lane_remove(struct sched *s, struct sched_lane *lane)
{
	struct lane_poll last = s->polls[--s->n_lanes];

	assert(!lane->parked && !lane->n_seqs);
	s->polls[lane->poll] = last;
	last.lane->poll = lane->poll;
	TAILQ_REMOVE(&s->lanes, lane, link);
	LIST_REMOVE(lane, session_link);
	lane->session->n_lanes--;
	s->hold_stale = true;
	free(lane->step.parts);
	free(lane->body);
	free(lane);
}

void lane_shut_down(struct sched *s, struct sched_lane *lane, struct outcome outcome)
{
	uint64_t submitted = ring_submitted(lane->shared);

	if (lane->parked)
		step_fail(s, lane, outcome);
	if (lane->broken || submitted - lane->accepted > ABI_LANE_SLOTS)
		return;
	while (lane->accepted < submitted) {
		struct abi_entry entry;

		lane->accepted++;
		ring_copy_entry(lane->shared, lane->accepted, &entry);
		lane->word = entry_word(&entry, lane->accepted);
		complete_entry(s, lane, outcome);
	}
}

bool lanes_serve(struct sched *s)
{
	bool any = false;

	for (uint32_t i = 0; i < s->n_lanes; i++) {
		struct lane_poll *p = &s->polls[i];

		if (atomic_load_explicit(p->submitted, memory_order_relaxed) == p->accepted)
			continue;
		any |= entry_serve_lane(s, p->lane);
		p->accepted = p->lane->accepted;
	}
	return any;
}

bool lanes_waiting(const struct sched *s)
{
	for (uint32_t i = 0; i < s->n_lanes; i++) {
		const struct lane_poll *p = &s->polls[i];

		if (!p->lane->parked && !p->lane->broken &&
		    atomic_load_explicit(p->submitted, memory_order_relaxed) != p->accepted)
			return true;
	}
	return false;
}

uint32_t lanes_active(const struct sched *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_lanes; i++)
		n += s->polls[i].lane->active_ns + ACTIVE_NS > s->now_ns;
	return n;
}
