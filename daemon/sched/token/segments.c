/*
 * segments.c - how long a segment of a pass may be, what the backend is told of it, and whose time
 * it is.
 *
 * A pass that nobody waits behind is one segment, but where that would take long. Each is told all
 * of the pass's rows: it goes on where the last one ended, or begins anew where the backend no
 * longer has what that left.
 */
#include "segments.h"

#include "company.h"
#include "pass_end.h"
#include "rows.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/step/step_end.h"

#include <errno.h>
#include <math.h>

/* Of segment_ms: for no more of a pass others' layers wait, and who waits for the scheduler's
 * thread. */
#define LAYERS_PART 0.4
#define HELD_PART 2.0
#define ALONE_PART 2.0 /* of batch_budget_ms: for so long who comes unheard of may wait */
#define LAYERS_NS UINT64_C(100000000) /* who computes layers does so still, after so long */
#define SPARE_PART 0.1 /* of what all need: rows of who has not come, to keep a plan */

/* Does it compute its layers itself, now or a moment ago? However long it has waited: a segment may
 * be longer than that moment. Other entries say nothing of it. */
static bool computes_layers(const struct sched_core *core, const struct sched_lane *lane)
{
	return lane->step.model && lane->step.kind != STEP_TOKENS &&
	       (step_is_there(lane) || core->now_ns < step_seen_ns(&lane->step) + LAYERS_NS);
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
	double ns = p->core->config->segment_ms * 1e6;

	if (anybody_computes_layers(p->core))
		return (uint64_t)(LAYERS_PART * ns);
	if (company_may_cut_in(p))
		return (uint64_t)ns;
	if (p->core->ops->program->holds)
		return (uint64_t)(HELD_PART * ns);
	ns = ALONE_PART * p->core->config->batch_budget_ms * 1e6;
	return p->now->ns > ns ? (uint64_t)ns : 0;
}

/* While nothing moves KV under a pass that is run at once, who is absent may have rows in it. */
static void set_spare(struct passes *p, bool at_once)
{
	const struct config *config = p->core->config;
	uint32_t n_rows = 0;

	for (uint32_t i = 0; i < p->now->job.n_lanes; i++)
		n_rows += p->now->job.lanes[i]->decode.n_rows;
	p->now->n_rows = n_rows;
	p->now->job.spare_rows = p->core->ops->program->max_rows - n_rows;
	p->now->job.spare_ns = at_once && !config->host_tier_bytes && p->core->ops->advance
				       ? SPARE_PART * p->now->job.model->program->cost.fixed_ns
				       : 0;
}

static int segment_try(struct passes *p)
{
	uint64_t most_ns = segment_ns(p);
	int r;

	set_spare(p, !p->now->goes_on && !most_ns);
	r = jobs_plan(p->plans, &p->now->job, 1, &p->planned);
	if (r == 0)
		r = rows_collect(p);
	if (r < 0)
		return r;
	const struct backend_run run = {.program = p->now->job.model->program->backend,
					.job = &p->planned,
					.rows = &p->rows,
					.goes_on = p->now->goes_on,
					.most_ns = most_ns,
					.expected = p->now->expected};

	p->begun_ns = core_clock(p->core); /* how long plans take says nothing of the backend */
	return p->core->ops->program->run(p->core->backend, &run, &p->ran);
}

/* The backend keeps plans for a while only; with one it forgets what rows were between segments. */
static int segment_start(struct passes *p)
{
	int r = segment_try(p);

	if (r != -ESTALE)
		return r;
	if (p->now->job.plan && p->now->job.plan->advanced)
		plan_drop(p->now->job.plan);
	p->now->goes_on = false;
	return segment_try(p);
}

/* Who is in the pass has the segment's part of the time that his rows take, and of what all
 * need. */
static void segment_charge(struct passes *p)
{
	const struct held_program *program = p->now->job.model->program;
	double part = p->ran.part, n_bytes = part * (double)program->pass_bytes / p->now->n_rows;
	double fixed_ns = program->cost.fixed_ns / p->now->job.n_lanes;
	bool all = step_n_there(&p->core->steps) == p->now->job.n_lanes;

	p->now->ran_ns += part * p->now->ns;
	for (uint32_t i = 0; i < p->now->job.n_lanes; i++) {
		struct sched_lane *lane = p->now->job.lanes[i];

		turn_take(p->core, lane, part * (lane->step.alone_ns + fixed_ns));
		if (all)
			turn_bound_lead(p->core, lane,
					fmax(part * p->now->ns, pass_budget_ns(p->core)));
		lane->session->weights_bytes_read += (uint64_t)(n_bytes * lane->decode.n_rows);
	}
}

static void renew_leases_of(const struct passes *p, enum step_state state)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[state], state_link)
		for (uint32_t i = 0; i < lane->step.n_parts; i++)
			store_seq_progress(lane->step.parts[i].seq->store, p->core->now_ns);
}

/* What they have claimed is on its way, in a pass that is aside, too; and who waits for a pass has
 * done what he can. */
static void renew_leases(const struct passes *p)
{
	renew_leases_of(p, STEP_IN_PASS);
	renew_leases_of(p, STEP_AWAITING_PASS);
}

bool segment_begin(struct passes *p)
{
	int r = segment_start(p);

	if (r == -EIO)
		core_fail(p->core);
	if (r < 0)
		pass_fail(p, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
	p->in_flight = r == 0;
	if (r == 0) {
		p->now->goes_on = true;
		p->last_model = NULL;
		p->core->stats.pass_segments++;
		renew_leases(p);
		segment_charge(p);
	}
	return r == 0;
}
