/*
 * passes.c - when a pass begins, and which comes next. Who goes with it says room.c, who is waited
 * for company.c, whose goes on where several are under way pass_turns.c; how a pass is run
 * segments.c, and what becomes of its tokens pass_end.c.
 *
 * Tokens are appended to their sequences right before they are run and published right after: a
 * prompt is a chunk after the other, each everybody's as soon as it is computed, and an entry that
 * fails, or is cancelled, leaves the chunks before it. Nothing that a pass reads changes while the
 * backend has it; what others' layers, or another program's pass, take away from under it between
 * two segments is found before the next one, and the pass begins anew without those who miss it.
 */
#include "passes.h"

#include "company.h"
#include "pass_end.h"
#include "pass_turns.h"
#include "room.h"
#include "segments.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/step/step_end.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

void passes_init(struct passes *p, struct sched_core *core, struct plans *plans)
{
	*p = (struct passes){.core = core, .plans = plans, .now = p->all};
}

void passes_done(struct passes *p)
{
	for (uint32_t i = 0; i < BACKEND_PROGRAMS_AT_ONCE; i++)
		job_done(&p->all[i].job);
	free(p->ids);
	free(p->positions);
	free(p->wanted);
	free(p->candidates);
	free(p->next.rows);
	free(p->next.slots);
}

void passes_forget_model(struct passes *p, const struct sched_model *model)
{
	for (uint32_t i = 0; i < BACKEND_PROGRAMS_AT_ONCE; i++)
		if (p->all[i].job.model == model)
			p->all[i].job.model = NULL;
	if (p->last_model == model)
		p->last_model = NULL;
}

uint64_t passes_deadline_ns(const struct passes *p)
{
	bool held = p->held_until_ns > p->core->now_ns;

	return held ? p->held_until_ns : UINT64_MAX;
}

/* ---- the next one is foreseen ---------------------------------------------------------------- */

/* For a token each, once they have what they asked for: whoever is to hear what follows. */
static bool all_come_again(const struct passes *p)
{
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++) {
		const struct sched_lane *lane = p->now->job.lanes[i];

		if (!lane->decode.want || lane->decode.parents ||
		    decode_tokens_left(lane) > lane->decode.n_rows)
			return false;
	}
	return true;
}

/* Its plan is not one for its own sequences' next tokens. */
static bool needs_another_plan(const struct batch_job *job)
{
	for (uint32_t i = 0; i < job->n_parts; i++)
		if (job->parts[i]->n_new != 1)
			return true;
	return false;
}

static struct pass_waiting who_waits(const struct step_queues *steps)
{
	const struct sched_lane *last =
		TAILQ_LAST(&steps->lanes[STEP_AWAITING_PASS], sched_lane_queue);

	return (struct pass_waiting){steps->n[STEP_AWAITING_PASS], last ? last->moved : 0};
}

/* Of the same model, with prompts. */
static bool foresee_pass(struct passes *p)
{
	p->seen = who_waits(&p->core->steps);
	p->gets_ready = false;
	if (!p->core->ops->prepare || !room_foresee(p))
		return false;
	job_foresee_next(p->plans, &p->now->job, &p->next);
	p->gets_ready = true;
	return true;
}

/* Who has come since then changes it. */
static void look_who_waits(struct passes *p)
{
	const struct pass_waiting now = who_waits(&p->core->steps);
	bool same = now.n == p->seen.n && now.last_moved == p->seen.last_moved;

	if (!same && !plan_ahead_is_making(&p->plans->ahead))
		foresee_pass(p);
}

/* The next pass's plan is made while the backend has this one. */
static void plan_next(struct passes *p)
{
	if (foresee_pass(p))
		return;
	if (needs_another_plan(&p->now->job)) {
		if (all_come_again(p))
			job_foresee(p->plans, &p->now->job);
	} else if (p->now->job.plan->ends_soon) {
		job_plan_ahead(p->plans, &p->now->job);
	}
}

/* ---- one begins ------------------------------------------------------------------------------ */

/* Nobody who waits for anything has had less. */
static void begin_turn(struct sched_core *core, const struct sched_lane *first)
{
	static const enum step_state waits[] = {STEP_RUNNABLE, STEP_HELD, STEP_WAITING_TURN,
						STEP_AWAITING_PASS, STEP_IN_PASS};
	const struct sched_lane *lane;

	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		TAILQ_FOREACH (lane, &core->steps.lanes[waits[i]], state_link)
			if (user_had_ns(core, lane->session->user) <
			    user_had_ns(core, first->session->user))
				first = lane;
	turn_begin(core, first);
}

/* What it is modelled to take, and by how much longer batches take than that. */
static void expect(struct passes *p, const struct room *room)
{
	const struct backend_program_cost *cost = &room->model->program->cost;
	double head_ns = room->n_wanted > 0 ? cost->head_ns + room_results_ns(room) : 0;
	double slowness = p->core->passes.times;

	p->now->ns = cost->fixed_ns + room->taken_ns;
	p->now->attention_ns = room_attention_ns(room);
	p->now->fear = room->fear;
	p->now->parts =
		(struct longer_parts){room->decode_ns, fmax(p->now->ns - room->decode_ns, 0)};
	p->now->expected = (struct backend_run_ns){
		.products = slowness * fmax(p->now->ns - head_ns - room_attention_ns(room), 0),
		.attend = slowness * room->attend_ns,
		.head = slowness * head_ns,
	};
}

static void submit(struct passes *p, const struct room *room)
{
	bool follows = p->last_model == room->model;

	p->now->goes_on = p->now->announced = false;
	p->now->took_ns = 0;
	p->now->ran_ns = 0;
	expect(p, room);
	p->now->under_way = true;
	p->n_under_way++;
	if (!segment_begin(p))
		return;
	p->now->gap_ns = follows ? p->begun_ns - p->last_ns : 0;
	company_came(p);
	p->core->stats.passes++;
	p->core->stats.passes_cut_in += p->n_under_way > 1;
	p->core->stats.pass_rows += p->now->n_rows;
	p->now->n_foreseen = 0;
	longer_use_learned(&p->now->job.model->longer);
	plan_next(p);
}

/* The next one of the lane's model. */
static void pass_begin(struct passes *p, struct sched_lane *first)
{
	struct room room;

	turn_begin_session(first);
	begin_turn(p->core, first);
	room_begin(p, first->step.model, &room);
	if (room_fill(p, &room) < 0)
		step_fail(p->core, first, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	if (p->now->job.n_lanes > 0)
		submit(p, &room);
	else
		pass_take_back(p);
}

/* ---- from one segment to the next ------------------------------------------------------------ */

static bool pass_is_resident(const struct passes *p)
{
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++)
		if (room_absent_part(p->now->job.lanes[i]) < p->now->job.lanes[i]->step.n_parts)
			return false;
	return true;
}

static void go_on(struct passes *p)
{
	if (!pass_is_resident(p)) {
		pass_give_back(p);
		return;
	}
	begin_turn(p->core, p->now->job.lanes[0]);
	segment_begin(p);
}

/* ---- the turns of all ------------------------------------------------------------------------ */

/* Whether it waits for company, still or from now on. */
static bool is_held(struct passes *p, const struct sched_lane *first)
{
	uint64_t until_ns = first ? company_until_ns(p, first->step.model) : 0;
	bool held = until_ns > p->core->now_ns;

	if (first && !held && p->held_until_ns)
		company_charge(p);
	p->held_until_ns = held ? until_ns : 0;
	return held;
}

static void between_segments(struct passes *p)
{
	struct sched_lane *first = pass_who_cuts_in(p);

	if (first) {
		pass_put_aside(p);
		pass_begin(p, first);
		return;
	}
	pass_choose(p);
	go_on(p);
}

bool passes_begin(struct passes *p)
{
	struct sched_lane *first;

	pass_end_cancelled(p);
	if (p->n_under_way > 0) {
		between_segments(p);
		return true;
	}
	first = turn_first(p->core, STEP_AWAITING_PASS, NULL);
	if (is_held(p, first) || !first)
		return false;
	pass_begin(p, first);
	return true;
}

static bool is_ending(const struct passes *p)
{
	const struct backend_program_ops *program = p->core->ops->program;

	return program->is_ending && program->is_ending(p->core->backend, p->ran.id);
}

/* Cores are free for all of them to spin, who have done nothing for so long that they may count as
 * idle. */
static bool may_all_spin(const struct passes *p)
{
	return p->core->spins && p->now->job.n_lanes + 1 <= p->core->n_cores;
}

/* To all that are done with it. Who sleeps is on a core again only some 50 us after it is woken,
 * and the next pass waits for the last of them. */
static void announce_end(struct passes *p)
{
	if (p->now->announced || !may_all_spin(p) || !is_ending(p))
		return;
	p->now->announced = true;
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++) {
		struct sched_lane *lane = p->now->job.lanes[i];

		if (decode_tokens_left(lane) <= lane->decode.n_rows)
			complete_soon(p->core, lane);
	}
}

bool passes_poll(struct passes *p)
{
	struct sched_core *core = p->core;
	uint64_t completed;

	if (core->ops->completed(core->backend, &completed) < 0) {
		core_fail(core);
		passes_fail(p);
		return true;
	}
	if (completed < p->ran.id) {
		announce_end(p);
		look_who_waits(p);
		return p->gets_ready && room_get_ready(p);
	}
	core->now_ns = core_clock(core);
	p->in_flight = false;
	p->now->took_ns += core->now_ns - p->begun_ns;
	core->stats.pass_ns += core->now_ns - p->begun_ns;
	if (p->ran.ended)
		pass_finish(p);
	return true;
}

void passes_fail(struct passes *p)
{
	while (p->n_under_way > 0)
		pass_fail(p, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}
