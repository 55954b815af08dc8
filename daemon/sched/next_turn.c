/*
 * next_turn.c - whose turn the next batch is, where not all fit one.
 *
 * Users have turns by the time that the backend has had for each of them, and so have the sessions
 * of a user (core/turns.h). Which steps a batch takes says run/fit.c. Here is what goes before it:
 * whether somebody is worth a wait whose turn it would be, and whether decode or prefill goes
 * first. Where all fit one batch none of this is asked.
 */
#include "next_turn.h"

#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/token/pass_turns.h"
#include "proto/arith.h"

#define NEWCOMERS_PART 4u /* of the longest wait */

/* Who is waited for has the backend's time as if it worked for him, once it is known how long. */
static void begin_wait(const struct sched *s, struct sched_lane *lane, uint64_t until_ns)
{
	if (lane->pace.awaited_ns || until_ns <= s->core.now_ns)
		return;
	lane->pace.awaited_ns = s->core.now_ns;
	lane->pace.awaited_until_ns = until_ns;
}

/* Until when the lane's next step is worth a wait; 0: it is not. Of a newcomer nobody can tell: for
 * a part of the longest wait. */
static uint64_t worth_until_ns(const struct sched *s, const struct sched_lane *lane)
{
	uint64_t longest_ns = s->core.config->batch_window_max_us * UINT64_C(1000);
	uint64_t done_ns = lane->pace.done_ns, latest_ns = pace_latest_ns(lane);

	if (latest_ns <= done_ns + longest_ns)
		return latest_ns;
	return pace_is_known(lane) ? 0 : done_ns + longest_ns / NEWCOMERS_PART;
}

static bool any_counts(const struct sched *s, const struct sched_lane *lane,
		       const struct sched_lane *next)
{
	(void)s;
	(void)lane;
	(void)next;
	return true;
}

/* Of the same program company.c says who is waited for. Who could not cut in would wait, too. */
static bool other_tokens_count(const struct sched *s, const struct sched_lane *lane,
			       const struct sched_lane *next)
{
	return lane->step.kind == STEP_TOKENS && lane->decode.pass_ns &&
	       lane->decode.pass_of != next->step.model &&
	       pass_may_cut_in(&s->passes, lane->decode.pass_of);
}

/* Until when another user's step may come, whose turn it would be before the lane's: he has just
 * had the last one's result. */
static uint64_t expected_until_ns(struct sched *s, const struct sched_lane *next,
				  bool (*counts)(const struct sched *s,
						 const struct sched_lane *lane,
						 const struct sched_lane *next))
{
	struct sched_lane *lane;
	uint64_t until_ns = 0;

	TAILQ_FOREACH (lane, &s->core.steps.lanes[STEP_FREE], state_link) {
		uint64_t latest_ns = worth_until_ns(s, lane);

		if (lane->pace.awaited_ns && lane->pace.awaited_until_ns <= s->core.now_ns)
			pace_end_wait(&s->core, lane);
		if (lane->session->user == next->session->user || lane->broken || !latest_ns ||
		    !turn_is_before(&s->core, lane, next) || !counts(s, lane, next))
			continue;
		begin_wait(s, lane, latest_ns);
		until_ns = max_u64(latest_ns, until_ns);
	}
	return until_ns;
}

/* Where steps are left behind that others' may come before: else who asks for one step at a time
 * would have one batch's, and wait for another of theirs each time. */
bool turn_is_awaited(struct sched *s)
{
	struct sched_lane *next;

	if (!s->fit.left_some && s->core.steps.n[STEP_WAITING_TURN] == 0)
		return false;
	next = turn_first(&s->core, STEP_WAITING_TURN, turn_first(&s->core, STEP_RUNNABLE, NULL));
	s->awaited_ns = next ? expected_until_ns(s, next, any_counts) : 0;
	return s->core.now_ns < s->awaited_ns;
}

/* Whose the next segment is, or the next pass. */
static struct sched_lane *next_of_passes(const struct sched *s)
{
	enum step_state state = s->passes.n_under_way > 0 ? STEP_IN_PASS : STEP_AWAITING_PASS;
	struct sched_lane *lane = pass_who_cuts_in(&s->passes);

	return lane ? lane : turn_first(&s->core, state, NULL);
}

/* Else who asks for a token at a time would have one in each segment, however little that is. */
bool turn_is_awaited_by_pass(struct sched *s)
{
	const struct sched_lane *next = next_of_passes(s);

	s->awaited_by_pass_ns = next ? expected_until_ns(s, next, other_tokens_count) : 0;
	return s->core.now_ns < s->awaited_by_pass_ns;
}

/* A user's decode goes first, but never twice in a row while his prefill waits: each delays the
 * other by one batch at most. Of two users it is the turn of the one who has had less. */
bool turn_is_prefills(struct sched *s)
{
	struct sched_lane *decode, *prefill;

	prefill =
		turn_first(&s->core, STEP_STREAMING, turn_first(&s->core, STEP_WAITING_TURN, NULL));
	if (!prefill)
		return s->prefill_turn;
	decode = turn_first(&s->core, STEP_HELD, turn_first(&s->core, STEP_RUNNABLE, NULL));
	bool is_prefills = !decode || turn_is_before(&s->core, prefill, decode);

	turn_begin(&s->core, is_prefills ? prefill : decode);
	turn_begin_session(is_prefills ? prefill : decode);
	if (!decode || decode->session->user == prefill->session->user)
		return s->prefill_turn;
	return is_prefills || (s->prefill_turn && !turn_is_before(&s->core, decode, prefill));
}

/* Layers and passes in turns, unless one of two users has had less. */
bool turn_is_passes(const struct sched *s)
{
	const struct sched_lane *pass = next_of_passes(s), *layer;

	layer = turn_first(&s->core, STEP_WAITING_TURN, turn_first(&s->core, STEP_RUNNABLE, NULL));
	if (!pass || !layer || pass->session->user == layer->session->user)
		return s->pass_turn;
	if (turn_is_before(&s->core, pass, layer))
		return true;
	return s->pass_turn && !turn_is_before(&s->core, layer, pass);
}
