/*
 * passes.c - when a pass begins, and what becomes of the tokens in it; who goes says room.c, and
 * who is waited for company.c.
 *
 * Tokens are appended to their sequences right before they are run and published right after: a
 * prompt is a chunk after the other, each everybody's as soon as it is computed, and an entry that
 * fails, or is cancelled, leaves the chunks before it. Nothing that a pass reads changes while the
 * backend has it; what others' layers, or another program's pass, take away from under it between
 * two segments is found before the next one, and the pass begins anew without those who miss it.
 */
#include "passes.h"

#include "company.h"
#include "pass_turns.h"
#include "room.h"
#include "rows.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/away.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/step/step_end.h"

#include "proto/ring.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define SEGMENT_NS UINT64_C(2000000) /* others' layers wait for no more of a pass */
#define CUT_IN_NS UINT64_C(5000000) /* nor do another program's tokens */
#define HELD_NS UINT64_C(10000000) /* nor does whoever waits for the scheduler's thread */
#define LAYERS_NS UINT64_C(100000000) /* who computes layers does so still, after so long */
#define SPARE_PART 0.1 /* of what all need: rows of who has not come, to keep a plan */
#define GAP_PART 0.1 /* of a pass: what comes between two, if that is no pause */
#define AS_MODELLED 1.01 /* what ran was that once, and nothing of it again */
#define ATTENTION_PART 0.25 /* of a pass that says something of it */
#define LEARN_NS 1e6 /* how long a pass takes is learned from those that seem to take so long */

void passes_init(struct passes *p, struct sched_core *core, struct plans *plans)
{
	*p = (struct passes){.core = core, .plans = plans};
}

void passes_done(struct passes *p)
{
	job_done(&p->now.job);
	for (uint32_t i = 0; i < PASSES_ASIDE; i++)
		job_done(&p->aside[i].job);
	free(p->ids);
	free(p->positions);
	free(p->wanted);
	free(p->candidates);
	free(p->next.rows);
	free(p->next.slots);
}

void passes_forget_model(struct passes *p, const struct sched_model *model)
{
	if (p->now.job.model == model)
		p->now.job.model = NULL;
	for (uint32_t i = 0; i < PASSES_ASIDE; i++)
		if (p->aside[i].job.model == model)
			p->aside[i].job.model = NULL;
	if (p->last_model == model)
		p->last_model = NULL;
}

uint64_t passes_deadline_ns(const struct passes *p)
{
	bool held = p->held_until_ns > p->core->now_ns;

	return held ? p->held_until_ns : UINT64_MAX;
}

/* ---- to the backend ------------------------------------------------------------------------- */

/* Does it compute its layers itself, now or a moment ago? Other entries say nothing of that. */
static bool computes_layers(const struct sched_core *core, const struct sched_lane *lane)
{
	return lane->step.model && lane->step.kind != STEP_TOKENS &&
	       core->now_ns < lane->step.arrival_ns + LAYERS_NS;
}

static bool anybody_computes_layers(const struct sched_core *core)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &core->lanes, link)
		if (computes_layers(core, lane))
			return true;
	return false;
}

/* 0: without an end. */
static uint64_t segment_ns(const struct passes *p)
{
	if (anybody_computes_layers(p->core))
		return SEGMENT_NS;
	if (company_may_cut_in(p))
		return CUT_IN_NS;
	return p->core->ops->program->holds ? HELD_NS : 0;
}

/* While nothing moves KV under a pass that is run at once, who is absent may have rows in it. */
static void set_spare(struct passes *p, bool at_once)
{
	const struct config *config = p->core->config;
	uint32_t n_rows = 0;

	for (uint32_t i = 0; i < p->now.job.n_lanes; i++)
		n_rows += p->now.job.lanes[i]->decode.n_rows;
	p->now.n_rows = n_rows;
	p->now.job.spare_rows = p->core->ops->program->max_rows - n_rows;
	p->now.job.spare_ns = at_once && !config->host_tier_bytes && p->core->ops->advance
				      ? SPARE_PART * p->now.job.model->program->cost.fixed_ns
				      : 0;
}

static int segment_try(struct passes *p)
{
	uint64_t most_ns = segment_ns(p);
	int r;

	set_spare(p, !p->now.goes_on && !most_ns);
	r = jobs_plan(p->plans, &p->now.job, 1, &p->planned);
	if (r == 0)
		r = rows_collect(p);
	if (r < 0)
		return r;
	const struct backend_run run = {.program = p->now.job.model->program->backend,
					.job = &p->planned,
					.rows = &p->rows,
					.goes_on = p->now.goes_on,
					.most_ns = most_ns,
					.expected = p->now.expected};

	return p->core->ops->program->run(p->core->backend, &run, &p->ran);
}

/* The backend keeps plans for a while only; with one it forgets what rows were between segments. */
static int segment_start(struct passes *p)
{
	p->begun_ns = core_clock(p->core);
	int r = segment_try(p);

	if (r != -ESTALE)
		return r;
	if (p->now.job.plan && p->now.job.plan->advanced)
		plan_drop(p->now.job.plan);
	p->now.goes_on = false;
	return segment_try(p);
}

static void pass_end(struct passes *p)
{
	p->now.job.n_lanes = 0;
	p->now.under_way = p->in_flight = false;
	pass_take_back(p);
}

static void pass_fail(struct passes *p, struct outcome outcome)
{
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++)
		step_fail(p->core, p->now.job.lanes[i], outcome);
	pass_end(p);
}

/* Who is in the pass has the segment's part of the time that his rows take, and of what all
 * need. */
static void segment_charge(struct passes *p)
{
	const struct held_program *program = p->now.job.model->program;
	double part = p->ran.part, n_bytes = part * (double)program->pass_bytes / p->now.n_rows;
	double fixed_ns = program->cost.fixed_ns / p->now.job.n_lanes;
	bool all = step_n_there(&p->core->steps) == p->now.job.n_lanes;

	p->now.ran_ns += part * p->now.ns;
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++) {
		struct sched_lane *lane = p->now.job.lanes[i];

		turn_take(p->core, lane, part * (lane->step.alone_ns + fixed_ns));
		if (all)
			turn_bound_lead(p->core, lane,
					fmax(part * p->now.ns, pass_budget_ns(p->core)));
		lane->session->weights_bytes_read += (uint64_t)(n_bytes * lane->decode.n_rows);
	}
}

/* What they have claimed is on its way, in a pass that is aside, too. */
static void renew_leases(const struct passes *p)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_IN_PASS], state_link)
		for (uint32_t i = 0; i < lane->step.n_parts; i++)
			store_seq_progress(lane->step.parts[i].seq->store, p->core->now_ns);
}

/* False: the pass has failed. */
static bool segment_begin(struct passes *p)
{
	int r = segment_start(p);

	if (r == -EIO)
		core_fail(p->core);
	if (r < 0)
		pass_fail(p, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
	p->in_flight = r == 0;
	if (r == 0) {
		p->now.goes_on = true;
		p->last_model = NULL;
		renew_leases(p);
		segment_charge(p);
	}
	return r == 0;
}

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

/* For a token each, once they have what they asked for: whoever is to hear what follows. */
static bool all_come_again(const struct passes *p)
{
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++) {
		const struct sched_lane *lane = p->now.job.lanes[i];

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
	job_foresee_next(p->plans, &p->now.job, &p->next);
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
	if (needs_another_plan(&p->now.job)) {
		if (all_come_again(p))
			job_foresee(p->plans, &p->now.job);
	} else if (p->now.job.plan->ends_soon) {
		job_plan_ahead(p->plans, &p->now.job);
	}
}

/* What it is modelled to take, and by how much longer batches take than that. */
static void expect(struct passes *p, const struct room *room)
{
	const struct backend_program_cost *cost = &room->model->program->cost;
	double head_ns = room->n_wanted > 0 ? cost->head_ns + room_results_ns(room) : 0;
	double slowness = p->core->passes.times;

	p->now.ns = cost->fixed_ns + room->taken_ns;
	p->now.attention_ns = room_attention_ns(room);
	p->now.fear = room->fear;
	p->now.parts = (struct longer_parts){room->decode_ns, fmax(p->now.ns - room->decode_ns, 0)};
	p->now.expected = (struct backend_run_ns){
		.products = slowness * fmax(p->now.ns - head_ns - room_attention_ns(room), 0),
		.attend = slowness * room->attend_ns,
		.head = slowness * head_ns,
	};
}

static void submit(struct passes *p, const struct room *room)
{
	bool follows = p->last_model == room->model;

	p->now.goes_on = false;
	p->now.took_ns = 0;
	p->now.ran_ns = 0;
	expect(p, room);
	p->now.under_way = true;
	if (!segment_begin(p))
		return;
	p->now.gap_ns = follows ? p->begun_ns - p->last_ns : 0;
	company_came(p);
	p->core->stats.passes++;
	p->core->stats.pass_rows += p->now.n_rows;
	p->now.n_foreseen = 0;
	longer_use_learned(&p->now.job.model->longer);
	plan_next(p);
}

/* ---- from one segment to the next ------------------------------------------------------------ */

static bool pass_is_resident(const struct passes *p)
{
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++)
		if (room_absent_part(p->now.job.lanes[i]) < p->now.job.lanes[i]->step.n_parts)
			return false;
	return true;
}

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

/* As if its rows had never been live: who still has his path waits for the next pass. */
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

static void go_on(struct passes *p)
{
	if (pass_is_resident(p)) {
		begin_turn(p->core, p->now.job.lanes[0]);
		segment_begin(p);
		return;
	}
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++)
		lane_give_back(p, p->now.job.lanes[i]);
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

static void end_cancelled(struct passes *p)
{
	struct sched_lane *lane, *next;

	for (lane = step_first(&p->core->steps, STEP_AWAITING_PASS); lane; lane = next) {
		next = TAILQ_NEXT(lane, state_link);
		if (ring_is_cancelled(lane->shared, lane->accepted))
			lane_cancel(p, lane);
	}
}

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

/* The next one of the lane's model. */
static void pass_begin(struct passes *p, struct sched_lane *first)
{
	struct room room;

	turn_begin_session(first);
	begin_turn(p->core, first);
	room_begin(p, first->step.model, &room);
	if (room_fill(p, &room) < 0)
		step_fail(p->core, first, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	if (p->now.job.n_lanes > 0)
		submit(p, &room);
	else
		pass_take_back(p);
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

	end_cancelled(p);
	if (p->now.under_way) {
		between_segments(p);
		return true;
	}
	first = turn_first(p->core, STEP_AWAITING_PASS, NULL);
	if (is_held(p, first) || !first)
		return false;
	pass_begin(p, first);
	return true;
}

/* ---- from the backend ----------------------------------------------------------------------- */

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
	step_move(&p->core->steps, lane, STEP_FREE);
	complete_entry(p->core, lane, &outcome);
}

/* Of a pass that has much of it: what is beyond the rest of it. */
static void learn_of_attention(struct passes *p, double took_ns)
{
	struct sched_core *core = p->core;
	const struct pass *pass = &p->now;
	double rest_ns = core->passes.times * (pass->ns - pass->attention_ns);

	if (pass->attention_ns >= ATTENTION_PART * pass->ns)
		slowness_learn_part(&core->attention, core->ops->unseen,
				    pass->attention_ns / pass->fear, took_ns - rest_ns);
}

/* How long passes take; of their parts, where none of it was done anew. Who decodes sees them from
 * one pass to the next. */
static void learn(struct passes *p)
{
	double took_ns = (double)p->now.took_ns, gap_ns = (double)p->now.gap_ns;

	slowness_learn(&p->core->passes, SLOWNESS_MAX, p->now.ran_ns, took_ns);
	if (p->now.ran_ns >= AS_MODELLED * p->now.ns)
		return;
	learn_of_attention(p, took_ns);
	if (p->now.job.model)
		longer_learn(&p->now.job.model->longer, &p->now.parts,
			     took_ns + (gap_ns < GAP_PART * took_ns ? gap_ns : 0));
}

static void pass_finish(struct passes *p)
{
	p->last_number = p->now.number;
	p->last_ns = p->core->now_ns;
	p->last_model = p->now.job.model;
	if (p->now.ran_ns >= LEARN_NS)
		learn(p);
	for (uint32_t i = 0; i < p->now.job.n_lanes; i++)
		lane_finish(p, p->now.job.lanes[i]);
	pass_end(p);
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
		look_who_waits(p);
		return p->gets_ready && room_get_ready(p);
	}
	core->now_ns = core_clock(core);
	p->in_flight = false;
	p->now.took_ns += core->now_ns - p->begun_ns;
	core->stats.pass_ns += core->now_ns - p->begun_ns;
	if (p->ran.ended)
		pass_finish(p);
	return true;
}

void passes_fail(struct passes *p)
{
	while (p->now.under_way)
		pass_fail(p, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}
