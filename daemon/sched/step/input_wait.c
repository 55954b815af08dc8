/*
 * input_wait.c - from a step that was checked to one whose inputs are there.
 *
 * What the client's words say is read and compared; nothing is made of them. A step with a pair of
 * words waits even to be refused: its stream will write the word, which must not be found by the
 * next replay of its graph.
 */
#include "input_wait.h"

#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/pace.h"
#include "step_end.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "proto/ring.h"

#define LOOK_MAX_NS NS_PER_MS /* between two looks at a step */
#define LOOK_PART 8 /* of the time that it has waited */
#define LOOK_EACH_NS UINT64_C(200000) /* for so long who spins looks in each round */
#define SOON_NS NS_PER_MS /* a stream that is at work writes the next inputs in less */

void input_wait_init(struct input_wait *w, struct sched_core *core)
{
	*w = (struct input_wait){.core = core, .look_ns = UINT64_MAX};
}

static bool inputs_are_there(const struct sched_lane *lane)
{
	if (lane->word < ABI_LANE_WORDS)
		return ring_take_ready_word(lane->shared, lane->word);
	return !lane->step.by_stream || ring_is_ready(lane->shared, lane->accepted);
}

/* The step can run. */
static void arrive(struct sched_core *core, struct sched_lane *lane)
{
	lane->step.arrival_ns = core->now_ns;
	lane->active_ns = core->now_ns;
	pace_arrived(core, lane);
	step_move(&core->steps, lane,
		  lane->step.kind == STEP_DECODE ? STEP_RUNNABLE : STEP_WAITING_TURN);
}

void input_wait_begin(struct input_wait *w, struct sched_lane *lane, const struct outcome *checked)
{
	struct sched_core *core = w->core;
	bool there = inputs_are_there(lane);

	if (there && checked->status) {
		complete_entry(core, lane, checked);
		return;
	}
	if (there) {
		arrive(core, lane);
		return;
	}
	if (checked->status)
		lane->step.n_parts = 0;
	lane->refusal = *checked;
	lane->await_since_ns = w->since_ns = core->now_ns;
	lane->await_look_ns = w->look_ns = core->now_ns;
	step_move(&core->steps, lane, checked->status ? STEP_REFUSED : STEP_AWAITING_INPUT);
}

static uint64_t pause_between_looks_ns(const struct input_wait *w, const struct sched_lane *lane)
{
	uint64_t for_ns = w->core->now_ns - lane->await_since_ns;

	if (w->core->spins && for_ns < LOOK_EACH_NS)
		return 0;
	return min_u64(for_ns / LOOK_PART, LOOK_MAX_NS);
}

static bool look_at(struct input_wait *w, struct sched_lane *lane)
{
	struct sched_core *core = w->core;
	bool now = core->now_ns >= lane->await_look_ns;

	if (now && inputs_are_there(lane)) {
		if (lane->state == STEP_REFUSED)
			step_fail(core, lane, lane->refusal);
		else
			arrive(core, lane);
		return true;
	}
	if (now)
		lane->await_look_ns = core->now_ns + pause_between_looks_ns(w, lane);
	if (lane->await_look_ns < w->look_ns)
		w->look_ns = lane->await_look_ns;
	return false;
}

static bool look_at_all(struct input_wait *w, enum step_state state)
{
	struct sched_lane *lane, *next;
	bool any = false;

	for (lane = step_first(&w->core->steps, state); lane; lane = next) {
		next = TAILQ_NEXT(lane, state_link);
		any |= look_at(w, lane);
	}
	return any;
}

bool input_wait_look(struct input_wait *w)
{
	w->look_ns = UINT64_MAX;
	bool any = look_at_all(w, STEP_AWAITING_INPUT);

	return look_at_all(w, STEP_REFUSED) || any;
}

bool input_wait_soon(const struct input_wait *w)
{
	return input_wait_n(w) > 0 && w->core->now_ns - w->since_ns < SOON_NS;
}
