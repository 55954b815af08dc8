/*
 * round.c - a round of the scheduler: a step's way through the daemon, top to bottom.
 *
 * It has five phases, in this order:
 *   finish   what the backend has done: clients go on while the rest of the round is ours
 *   take     entries of all rings, and inputs that streams have written; steps become runnable
 *   serve    what others want of the pool's memory; requests of the loop, between batches, as they
 *            change what batches are made of; while a pass is under way those that touch nothing of
 *            it
 *   begin    the next batch, of decode and prefill in turns: what was taken above is in it
 *   look     at clocks and copies, while the backend is at work
 * Whose turn the next batch is says next_turn.c. A round without anything to do rests: rest.c.
 * Streams ring no doorbell: while steps wait for their inputs the next look at them is a deadline.
 *
 * Where a step is says core/lane.h. Folders are in the order of its way, and each knows those
 * before it alone: core (what all need), seq (a lane's sequences and completions), step (entries,
 * checks, ends), run (batches), token (passes of programs), long (attention that is streamed),
 * verbs (requests), and this file with what stands beside it.
 */
#include "round.h"

#include "daemon/sched/core/away.h"
#include "daemon/sched/long/prefill.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/verbs/serve.h"
#include "extents.h"
#include "next_turn.h"

#include <errno.h>

#define LOOKS_AGAIN 4 /* behind a trim or a fork each */

/* ---- finish --------------------------------------------------------------------------------- */

/* What is open and what still comes fails, with a status, until the daemon has ended. */
static void fail_lanes(struct sched *s)
{
	struct sched_lane *lane;

	if (s->batch.in_flight)
		batch_fail(&s->batch);
	if (s->passes.n_under_way > 0)
		passes_fail(&s->passes);
	streamed_fail(&s->streamed);
	TAILQ_FOREACH (lane, &s->core.lanes, link)
		lane_shut_down(&s->lanes, lane, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

static bool finish(struct sched *s)
{
	bool any = s->batch.in_flight && batch_poll(&s->batch);

	if (s->passes.in_flight)
		any |= passes_poll(&s->passes);
	if (streamed_busy(&s->streamed))
		any |= streamed_poll(&s->streamed);
	if (core_failed(&s->core))
		fail_lanes(s);
	return any;
}

/* ---- take ----------------------------------------------------------------------------------- */

/* Who was not heard of while the backend held this thread may have come long since, with all that
 * is behind entries of his that may be long: else another segment would come before it. */
static bool take(struct sched *s)
{
	bool any = input_wait_is_due(&s->input_wait) && input_wait_look(&s->input_wait);

	any |= lanes_serve(&s->lanes);
	for (int i = 0; i < LOOKS_AGAIN && s->core.deaf_since_ns && s->lanes.some_left; i++)
		any |= lanes_serve_again(&s->lanes);
	return any;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static bool choose_decode(struct sched *s)
{
	if (window_is_due(&s->window))
		window_choose(&s->window);
	s->fit.left_some = false;
	if (fit_is_needed(&s->batch)) {
		away_look(&s->core);
		if (fit_is_needed(&s->batch))
			fit_batch(&s->fit);
	}
	return s->batch.n_jobs > 0;
}

static bool choose_prefill(struct sched *s)
{
	return prefill_waits(&s->core.steps) && prefill_choose(&s->streamed, &s->batch);
}

static bool begin_batch(struct sched *s)
{
	if (streamed_is_needed(&s->streamed))
		streamed_find(&s->streamed);
	if (turn_is_awaited(s))
		return false;
	bool chosen = turn_is_prefills(s) ? choose_prefill(s) || choose_decode(s)
					  : choose_decode(s) || choose_prefill(s);

	if (!chosen)
		return false;
	s->prefill_turn = !s->batch.sliced;
	batch_submit(&s->batch);
	return true;
}

static bool there_are_tokens(const struct sched *s)
{
	return s->core.steps.n[STEP_AWAITING_PASS] > 0 || s->passes.n_under_way > 0;
}

/* While a pass waits for another user's token. */
static bool begin_meanwhile(struct sched *s)
{
	bool any = begin_batch(s);

	s->pass_turn |= any;
	return any;
}

/* Segments of programs' tokens, and layers that sessions compute, go in turns. */
static bool begin(struct sched *s)
{
	if (step_n_there(&s->core.steps) == 0)
		return false;
	if (!there_are_tokens(s)) {
		s->pass_turn = true;
		return begin_batch(s);
	}
	if (turn_is_awaited_by_pass(s))
		return begin_meanwhile(s);
	bool passes_first = turn_is_passes(s);
	bool pass = passes_first && passes_begin(&s->passes);
	bool any = pass || begin_batch(s) || (!passes_first && passes_begin(&s->passes));

	s->pass_turn = !s->passes.in_flight;
	return any;
}

/* ---- a round -------------------------------------------------------------------------------- */

static void look(struct sched *s)
{
	if (s->tiers.on)
		sched_tiers_poll(s);
	if (s->core.now_ns >= s->core.next_tick_ns)
		s->core.next_tick_ns = store_tick(s->core.store, s->core.now_ns);
	if (s->waits.n > 0)
		waits_look(&s->waits);
	if (extents_ahead_is_due(&s->ahead))
		extents_look(s);
}

/* While it computes, passes and batches alike. */
static bool holds_thread(const struct sched *s)
{
	const struct backend_program_ops *program = s->core.ops->program;

	return program && program->holds;
}

bool sched_round(struct sched *s)
{
	s->core.now_ns = core_clock(&s->core);
	bool busy = finish(s), asked = ledger_is_asked(s->core.ledger);

	busy |= take(s);
	uint64_t looked_ns = s->core.now_ns; /* what is served takes its time behind that */

	s->core.deaf_since_ns = 0;
	if (!backend_is_at_work(s)) {
		if (s->n_leaving > 0)
			extents_release_leaving(s);
		busy |= asked && extents_make_room(s);
		busy |= requests_any(&s->core.requests) && serve_requests(s);
		busy |= begin(s);
		s->core.deaf_since_ns = backend_is_at_work(s) && holds_thread(s) ? looked_ns : 0;
	} else {
		busy |= asked && extents_make_room(s);
		busy |= s->passes.in_flight && serve_requests(s);
	}
	look(s);
	atomic_store_explicit(&s->rounds, s->rounds + 1, memory_order_relaxed);
	return busy;
}
