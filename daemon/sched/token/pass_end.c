/*
 * pass_end.c - what becomes of the tokens of a pass: published, given back, or failed; and what is
 * learned of how long it took.
 *
 * An entry that has tokens left waits for the next pass. What it has published stays, however it
 * ends; of a draft nothing is published here.
 */
#include "pass_end.h"

#include "pass_turns.h"
#include "room.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/away.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/step/step_end.h"

#include "proto/ring.h"

#include <errno.h>

#define GAP_PART 0.1 /* of a pass: what comes between two, if that is no pause */
#define AS_MODELLED 1.01 /* what ran was that once, and nothing of it again */
#define ATTENTION_PART 0.25 /* of a pass that says something of it */
#define LEARN_NS 1e6 /* how long a pass takes is learned from those that seem to take so long */

static void pass_end(struct passes *p)
{
	p->now->job.n_lanes = 0;
	p->now->under_way = p->in_flight = false;
	p->n_under_way--;
	pass_take_back(p);
}

/* ---- published ------------------------------------------------------------------------------- */

/* The tokens of a part join the tree; a draft awaits its accept. */
static int part_publish(struct passes *p, struct sched_lane *lane, uint32_t index)
{
	struct step_part *step = &lane->step.parts[index];
	struct decode_part *part = &lane->decode.parts[index];
	int r = 0;

	if (step->n_new == 0)
		return 0;
	store_seq_progress(step->seq->store, p->core->now_ns);
	if (!step->seq->draft)
		r = store_seq_publish(step->seq->store, p->core->now_ns);
	if (r < 0)
		return r;
	if (!step->seq->draft) {
		seq_clear_extension(step->seq);
		lane->session->tokens_computed += step->n_new;
	}
	part->n_done += step->n_new;
	step->seq->computed = step->seq->draft && part->n_done == part->n_new;
	step->n_new = 0;
	return 0;
}

static void lane_finish(struct passes *p, struct sched_lane *lane)
{
	struct outcome outcome = {.attended = 1, .mass = 1};

	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		int r = part_publish(p, lane, i);

		if (r == 0)
			continue;
		step_fail(p->core, lane, outcome_of_store(r, i));
		return;
	}
	if (decode_tokens_left(lane) > 0) {
		step_move(&p->core->steps, lane, STEP_AWAITING_PASS);
		return;
	}
	outcome.value = decode_tokens_done(lane);
	lane->session->decode_steps++;
	if (lane->pace.n_layers) {
		pace_finished(p->core, lane);
		away_begin(p->core, lane);
	}
	lane->step.done_ns = lane->decode.pass_ns = p->core->now_ns;
	step_move(&p->core->steps, lane, STEP_FREE);
	complete_entry(p->core, lane, &outcome);
}

/* Of a pass that has much of it: what is beyond the rest of it. */
static void learn_of_attention(struct passes *p, double took_ns)
{
	struct sched_core *core = p->core;
	const struct pass *pass = p->now;
	double rest_ns = core->passes.times * (pass->ns - pass->attention_ns);

	if (pass->attention_ns >= ATTENTION_PART * pass->ns)
		slowness_learn_part(&core->attention, core->ops->unseen,
				    pass->attention_ns / pass->fear, took_ns - rest_ns);
}

/* How long passes take; of their parts, where none of it was done anew. Who decodes sees them from
 * one pass to the next. */
static void learn(struct passes *p)
{
	double took_ns = (double)p->now->took_ns, gap_ns = (double)p->now->gap_ns;

	slowness_learn(&p->core->passes, SLOWNESS_MAX, p->now->ran_ns, took_ns);
	if (p->now->ran_ns >= AS_MODELLED * p->now->ns)
		return;
	learn_of_attention(p, took_ns);
	if (p->now->job.model)
		longer_learn(&p->now->job.model->longer, &p->now->parts,
			     took_ns + (gap_ns < GAP_PART * took_ns ? gap_ns : 0));
}

void pass_finish(struct passes *p)
{
	p->last_number = p->now->number;
	p->last_ns = p->core->now_ns;
	p->last_model = p->now->job.model;
	if (p->now->ran_ns >= LEARN_NS)
		learn(p);
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++)
		lane_finish(p, p->now->job.lanes[i]);
	pass_end(p);
}

/* ---- given back, failed, cancelled ----------------------------------------------------------- */

/* Its rows go, those of a draft that passes before had, too. */
static void part_give_back(struct passes *p, struct sched_lane *lane, uint32_t index)
{
	struct step_part *part = &lane->step.parts[index];

	store_seq_void(part->seq->store, p->core->now_ns);
	seq_clear_extension(part->seq);
	part->n_new = 0;
	if (lane->decode.parents)
		lane->decode.parts[index].n_done = 0;
}

static void lane_give_back(struct passes *p, struct sched_lane *lane)
{
	uint32_t absent = room_absent_part(lane);

	if (absent < lane->step.n_parts) {
		step_fail(p->core, lane, outcome_bad(-ENOSPC, ABI_NO_ROOM, absent));
		return;
	}
	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		struct step_part *part = &lane->step.parts[i];

		if (part->n_new)
			part_give_back(p, lane, i);
	}
	step_move(&p->core->steps, lane, STEP_AWAITING_PASS);
}

void pass_give_back(struct passes *p)
{
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++)
		lane_give_back(p, p->now->job.lanes[i]);
	pass_end(p);
}

void pass_fail(struct passes *p, struct outcome outcome)
{
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++)
		step_fail(p->core, p->now->job.lanes[i], outcome);
	pass_end(p);
}

/* What it has published stays. Its drafts go, those too that are whole: whose those are its client
 * is not told. */
static void lane_cancel(struct passes *p, struct sched_lane *lane)
{
	struct outcome outcome = outcome_bad(-ECANCELED, ABI_CANCELLED, 0);

	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		if (lane->step.parts[i].seq->draft)
			part_give_back(p, lane, i);
	outcome.value = decode_tokens_done(lane);
	step_move(&p->core->steps, lane, STEP_FREE);
	complete_entry(p->core, lane, &outcome);
}

void pass_end_cancelled(struct passes *p)
{
	struct sched_lane *lane, *next;

	for (lane = step_first(&p->core->steps, STEP_AWAITING_PASS); lane; lane = next) {
		next = TAILQ_NEXT(lane, state_link);
		if (ring_is_cancelled(lane->shared, lane->accepted))
			lane_cancel(p, lane);
	}
}
