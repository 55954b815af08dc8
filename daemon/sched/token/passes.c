/*
 * passes.c - who goes with a pass, with how many tokens, and what becomes of them.
 *
 * Tokens are appended to their sequences right before they are run and published right after: a
 * prompt is a chunk after the other, each everybody's as soon as it is computed, and an entry that
 * fails leaves the chunks before it. Nothing changes in the store while a pass is in flight.
 */
#include "passes.h"

#include "daemon/base/grow.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/complete.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "daemon/sched/step/step_end.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DECODE_ROWS 16u /* an entry of no more tokens goes whole */
#define CHUNK_ROWS 16u /* a prompt's least, where there are rows left */
#define WAIT_PART 0.5 /* of what a pass of its own would take, that company is waited for */

void passes_init(struct passes *p, struct sched_core *core, struct plans *plans)
{
	*p = (struct passes){.core = core, .plans = plans};
}

void passes_done(struct passes *p)
{
	job_done(&p->job);
	free(p->ids);
	free(p->positions);
	free(p->wanted);
}

void passes_forget_model(struct passes *p, const struct sched_model *model)
{
	if (p->job.model == model)
		p->job.model = NULL;
	if (p->last_model == model)
		p->last_model = NULL;
}

/* ---- company -------------------------------------------------------------------------------- */

static void cost_of(const struct passes *p, const struct sched_model *model,
		    struct backend_program_cost *ret)
{
	p->core->ops->program->cost(p->core->backend, model->program->backend, ret);
}

/* Was served by the last pass, and usually comes back about now. */
static bool is_expected(const struct passes *p, const struct sched_lane *lane,
			uint64_t *inout_until_ns)
{
	uint64_t latest_ns = pace_latest_ns(lane);

	if (lane->state != STEP_FREE || lane->broken || lane->decode.pass != p->number ||
	    lane->pace.model != p->last_model || latest_ns <= p->core->now_ns)
		return false;
	if (latest_ns > *inout_until_ns)
		*inout_until_ns = latest_ns;
	return true;
}

/* Whoever met in the last pass is to meet in the next: one that comes late by a moment would else
 * have a pass of its own from then on, and the weights would be read once more. */
static uint64_t company_until_ns(struct passes *p, const struct sched_model *model)
{
	uint64_t until_ns = 0, most_ns = p->core->config->batch_window_max_us * UINT64_C(1000);
	const struct sched_lane *lane;
	struct backend_program_cost cost;

	if (model != p->last_model)
		return 0;
	cost_of(p, model, &cost);
	if (most_ns > (uint64_t)(WAIT_PART * cost.fixed_ns))
		most_ns = (uint64_t)(WAIT_PART * cost.fixed_ns);
	if (p->core->now_ns >= p->last_ns + most_ns)
		return 0;
	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link)
		(void)is_expected(p, lane, &until_ns);
	return until_ns < p->last_ns + most_ns ? until_ns : p->last_ns + most_ns;
}

uint64_t passes_deadline_ns(const struct passes *p)
{
	bool held = p->held_until_ns && p->held_until_ns > p->core->now_ns;

	return held ? p->held_until_ns : UINT64_MAX;
}

/* ---- who goes ------------------------------------------------------------------------------- */

static uint32_t tokens_left(const struct sched_lane *lane)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		n += lane->decode.parts[i].n_new - lane->decode.parts[i].n_done;
	return n;
}

static bool is_decode(const struct sched_lane *lane)
{
	return tokens_left(lane) <= DECODE_ROWS;
}

/* The rows of a pass that are still to be had. */
struct room {
	const struct sched_model *model;
	uint32_t rows;
	double row_ns, ns;
};

static void room_begin(const struct passes *p, const struct sched_model *model, struct room *ret)
{
	struct backend_program_cost cost;

	cost_of(p, model, &cost);
	*ret = (struct room){.model = model,
			     .rows = p->core->ops->program->max_rows,
			     .row_ns = cost.row_ns,
			     .ns = fmax(budget_ns(p->core), cost.fixed_ns)};
}

/* What one row more takes, at the end of a path. */
static double row_ns(const struct room *room, const struct sched_seq *seq)
{
	const struct sched_model *m = room->model;
	double n_tokens = store_seq_n_tokens(seq->store);

	return room->row_ns + m->shape.n_layers * work_ns(m, n_tokens, 0);
}

/* Of the part's left tokens as many as there is room for. */
static uint32_t rows_for(const struct room *room, const struct sched_lane *lane, uint32_t part)
{
	const struct decode_part *d = &lane->decode.parts[part];
	uint32_t left = d->n_new - d->n_done, most = CHUNK_ROWS;
	double ns = row_ns(room, lane->step.parts[part].seq);

	if (!is_decode(lane) && room->ns > ns * most)
		most = room->ns < ns * left ? (uint32_t)(room->ns / ns) : left;
	if (most > room->rows)
		most = room->rows;
	return left < most ? left : most;
}

/* The part's next rows are live from now on. */
static int part_extend(struct passes *p, struct sched_lane *lane, uint32_t part, struct room *room)
{
	struct step_part *step = &lane->step.parts[part];
	const struct decode_part *d = &lane->decode.parts[part];
	uint32_t n = rows_for(room, lane, part);
	int r = 0;

	if (n > 0)
		r = store_seq_extend(step->seq->store, lane->decode.ids + d->first_id + d->n_done,
				     n, false, p->core->now_ns);
	if (r < 0)
		return r;
	step->n_new = n;
	step->n_seen = store_seq_n_tokens(step->seq->store) + n;
	room->rows -= n;
	room->ns -= n * row_ns(room, step->seq);
	return 0;
}

/* It is in the pass, with some rows, or has failed. */
static void lane_take(struct passes *p, struct sched_lane *lane, struct room *room)
{
	uint32_t n = 0;
	int r = 0;

	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		lane->step.parts[i].n_new = 0;
	for (uint32_t i = 0; i < lane->step.n_parts && r == 0; i++) {
		r = part_extend(p, lane, i, room);
		n += lane->step.parts[i].n_new;
		if (r < 0) {
			struct outcome outcome = outcome_of_store(r);

			outcome.where = i;
			step_fail(p->core, lane, outcome);
			return;
		}
	}
	if (n == 0)
		return;
	if (job_add(p->core, &p->job, lane) < 0) {
		step_fail(p->core, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
		return;
	}
	lane->decode.pass = p->number;
	step_move(&p->core->steps, lane, STEP_IN_PASS);
}

/* Of those that wait, of this model (NULL: of any), the first to have a turn. */
static struct sched_lane *first_in_turn(const struct passes *p, const struct sched_model *model,
					bool decode)
{
	struct sched_lane *lane, *first = NULL;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_AWAITING_PASS], state_link)
		if ((!model || lane->step.model == model) && (!decode || is_decode(lane)) &&
		    (!first || turn_is_before(p->core, lane, first)))
			first = lane;
	return first;
}

static void take_all(struct passes *p, struct room *room)
{
	struct sched_lane *lane;

	p->job.n_lanes = 0;
	p->number++;
	while (room->rows > 0 && (lane = first_in_turn(p, room->model, true))) {
		lane_take(p, lane, room);
		if (lane->state == STEP_AWAITING_PASS)
			break;
	}
	while (room->rows > 0 && (lane = first_in_turn(p, room->model, false))) {
		lane_take(p, lane, room);
		if (lane->state == STEP_AWAITING_PASS || room->ns <= 0)
			break;
	}
}

/* ---- to the backend ------------------------------------------------------------------------- */

static int row_want(struct passes *p, const struct decode *d, const struct decode_part *part,
		    uint32_t at, uint32_t row)
{
	uint32_t n = p->rows.n_wanted;

	if (!d->want || at < part->first_wanted)
		return 0;
	if (GROW(p->wanted, p->wanted_room, n + 1) < 0)
		return -ENOMEM;
	p->wanted[n] = (struct program_wanted){
		.row = row,
		.want = d->want,
		.n_top = d->n_top,
		.next = at + 1 < part->n_new ? d->ids[part->first_id + at + 1] : PROGRAM_NONE,
		.out = d->out + (uint64_t)(part->first_out + at - part->first_wanted) * d->stride,
	};
	p->rows.n_wanted++;
	return 0;
}

static int add_rows(struct passes *p, const struct sched_lane *lane, uint32_t index)
{
	const struct step_part *step = &lane->step.parts[index];
	const struct decode *d = &lane->decode;
	const struct decode_part *part = &d->parts[index];
	uint32_t pos = store_seq_n_tokens(step->seq->store), row = p->rows.n_rows;
	int r = 0;

	if (GROW(p->ids, p->ids_room, row + step->n_new) < 0 ||
	    GROW(p->positions, p->positions_room, row + step->n_new) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < step->n_new && r == 0; i++, row++) {
		p->ids[row] = d->ids[part->first_id + part->n_done + i];
		p->positions[row] = pos + i;
		r = row_want(p, d, part, part->n_done + i, row);
	}
	p->rows.n_rows = row;
	return r;
}

static int collect_rows(struct passes *p)
{
	int r = 0;

	p->rows = (struct program_rows){0};
	for (uint32_t i = 0; i < p->job.n_lanes; i++)
		for (uint32_t j = 0; j < p->job.lanes[i]->step.n_parts && r == 0; j++)
			r = add_rows(p, p->job.lanes[i], j);
	p->rows.ids = p->ids;
	p->rows.positions = p->positions;
	p->rows.wanted = p->wanted;
	return r;
}

static int pass_try(struct passes *p)
{
	const struct sched_model *model = p->job.model;
	struct backend_job job;
	int r = jobs_plan(p->plans, &p->job, 1, &job);

	if (r < 0)
		return r;
	const struct backend_run run = {.program = model->program->backend,
					.job = &job,
					.rows = &p->rows,
					.n_layers = model->shape.n_layers};

	return p->core->ops->program->run(p->core->backend, &run, &p->id);
}

/* The backend keeps plans for a while only. */
static int pass_start(struct passes *p)
{
	int r = collect_rows(p);

	if (r == 0)
		r = pass_try(p);
	if (r != -ESTALE)
		return r;
	if (p->job.plan && p->job.plan->advanced)
		plan_drop(p->job.plan);
	return pass_try(p);
}

static void pass_end(struct passes *p, struct outcome outcome)
{
	struct sched_lane *lane;

	while ((lane = step_first(&p->core->steps, STEP_IN_PASS)) != NULL)
		step_fail(p->core, lane, outcome);
	p->job.n_lanes = 0;
	p->in_flight = false;
}

/* Each lane's part, by its rows, is its user's. */
static void charge(struct passes *p, const struct room *room)
{
	struct backend_program_cost cost;

	cost_of(p, room->model, &cost);
	p->ns = cost.fixed_ns + fmax(budget_ns(p->core), cost.fixed_ns) - room->ns;
	for (uint32_t i = 0; i < p->job.n_lanes; i++) {
		struct sched_lane *lane = p->job.lanes[i];
		uint32_t n = 0;

		for (uint32_t j = 0; j < lane->step.n_parts; j++)
			n += lane->step.parts[j].n_new;
		turn_take(p->core, lane, p->ns * n / p->rows.n_rows);
		lane->session->weights_bytes_read +=
			room->model->program->pass_bytes * n / p->rows.n_rows;
	}
}

bool passes_begin(struct passes *p)
{
	const struct sched_lane *first = first_in_turn(p, NULL, false);
	struct room room;
	int r;

	p->held_until_ns = first ? company_until_ns(p, first->step.model) : 0;
	if (!first || p->held_until_ns > p->core->now_ns)
		return false;
	room_begin(p, first->step.model, &room);
	take_all(p, &room);
	p->begun_ns = core_clock(p->core);
	if (p->job.n_lanes == 0)
		return true;
	r = pass_start(p);
	if (r == -EIO)
		core_fail(p->core);
	if (r < 0) {
		pass_end(p, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
		return true;
	}
	charge(p, &room);
	p->core->stats.passes++;
	p->core->stats.pass_rows += p->rows.n_rows;
	p->in_flight = true;
	p->last_model = room.model;
	return true;
}

/* ---- from the backend ----------------------------------------------------------------------- */

/* The tokens of a part join the tree. */
static int part_publish(struct passes *p, struct sched_lane *lane, uint32_t index)
{
	struct step_part *step = &lane->step.parts[index];
	int r;

	if (step->n_new == 0)
		return 0;
	store_seq_progress(step->seq->store, p->core->now_ns);
	r = store_seq_publish(step->seq->store, p->core->now_ns);
	if (r < 0)
		return r;
	seq_clear_extension(step->seq);
	lane->session->tokens_computed += step->n_new;
	lane->decode.parts[index].n_done += step->n_new;
	step->n_new = 0;
	return 0;
}

static uint64_t n_done(const struct sched_lane *lane)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		n += lane->decode.parts[i].n_done;
	return n;
}

static void lane_finish(struct passes *p, struct sched_lane *lane)
{
	struct outcome outcome = {.attended = 1, .mass = 1};

	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		if (part_publish(p, lane, i) == 0)
			continue;
		step_fail(p->core, lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, i));
		return;
	}
	if (tokens_left(lane) > 0) {
		step_move(&p->core->steps, lane, STEP_AWAITING_PASS);
		return;
	}
	outcome.value = n_done(lane);
	lane->session->decode_steps++;
	if (lane->pace.n_layers)
		pace_finished(p->core, lane);
	step_move(&p->core->steps, lane, STEP_FREE);
	complete_entry(p->core, lane, outcome);
}

bool passes_poll(struct passes *p)
{
	struct sched_core *core = p->core;
	struct sched_lane *lane;
	uint64_t completed;

	if (core->ops->completed(core->backend, &completed) < 0) {
		core_fail(core);
		passes_fail(p);
		return true;
	}
	if (completed < p->id)
		return false;
	core->now_ns = core_clock(core);
	p->last_ns = core->now_ns;
	core->stats.pass_ns += p->last_ns - p->begun_ns;
	while ((lane = step_first(&core->steps, STEP_IN_PASS)) != NULL)
		lane_finish(p, lane);
	p->job.n_lanes = 0;
	p->in_flight = false;
	return true;
}

void passes_fail(struct passes *p)
{
	pass_end(p, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}
