/* input_wait.c - see input_wait.h. */
#include "input_wait.h"

#include "daemon/sched/seq/complete.h"
#include "daemon/sched/run/batch_window.h"
#include "step.h"

#include "proto/ring.h"

#define LOOK_MAX_NS UINT64_C(1000000) /* between two looks at a step */
#define LOOK_PART 8 /* of the time that it has been awaited */
#define LOOK_EACH_NS UINT64_C(200000) /* for so long who spins looks in each round */
#define SOON_NS UINT64_C(1000000) /* a stream that is at work writes the next inputs in less */

/* The client's words are read and compared, nothing is made of them. */
static bool is_ready(const struct sched_lane *lane)
{
	if (lane->word < ABI_LANE_WORDS)
		return ring_take_ready_word(lane->shared, lane->word);
	return !lane->step.on_stream || ring_is_ready(lane->shared, lane->accepted);
}

/* The step can run; or it can end, as it should have at once but for the word, which had to be
 * taken back first. */
static void arrive(struct sched *s, struct sched_lane *lane)
{
	s->n_parked++;
	lane->step.arrival_ns = s->now_ns;
	lane->active_ns = s->now_ns;
	if (lane->refusal.status)
		step_fail(s, lane, lane->refusal);
	else
		hold_arrived(s, lane);
}

void ready_park(struct sched *s, struct sched_lane *lane, struct outcome checked)
{
	lane->parked = true;
	lane->refusal = checked;
	if (checked.status)
		lane->step.n_parts = 0;
	if (is_ready(lane)) {
		arrive(s, lane);
		return;
	}
	lane->awaited = true;
	lane->await_since_ns = s->await_since_ns = s->now_ns;
	lane->await_look_ns = s->await_look_ns = s->now_ns;
	TAILQ_INSERT_TAIL(&s->awaited, lane, await_link);
}

void ready_forget(struct sched *s, struct sched_lane *lane)
{
	TAILQ_REMOVE(&s->awaited, lane, await_link);
	lane->awaited = false;
}

static uint64_t pause_between_looks_ns(const struct sched *s, const struct sched_lane *lane)
{
	uint64_t for_ns = s->now_ns - lane->await_since_ns;

	if (s->spin_ns && for_ns < LOOK_EACH_NS)
		return 0;
	return for_ns / LOOK_PART < LOOK_MAX_NS ? for_ns / LOOK_PART : LOOK_MAX_NS;
}

bool ready_look(struct sched *s)
{
	struct sched_lane *lane, *next;
	bool any = false;

	if (s->now_ns < s->await_look_ns)
		return false;
	s->await_look_ns = UINT64_MAX;
	for (lane = TAILQ_FIRST(&s->awaited); lane; lane = next) {
		uint64_t pause_ns = pause_between_looks_ns(s, lane);

		next = TAILQ_NEXT(lane, await_link);
		if (s->now_ns >= lane->await_look_ns && is_ready(lane)) {
			ready_forget(s, lane);
			arrive(s, lane);
			any = true;
			continue;
		}
		if (s->now_ns >= lane->await_look_ns)
			lane->await_look_ns = s->now_ns + pause_ns;
		if (lane->await_look_ns < s->await_look_ns)
			s->await_look_ns = lane->await_look_ns;
	}
	return any;
}

uint32_t ready_count(const struct sched *s)
{
	const struct sched_lane *lane;
	uint32_t n = 0;

	TAILQ_FOREACH (lane, &s->awaited, await_link)
		n++;
	return n;
}

bool ready_soon(const struct sched *s)
{
	return !TAILQ_EMPTY(&s->awaited) && s->now_ns - s->await_since_ns < SOON_NS;
}
