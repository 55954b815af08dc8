/*
 * batch.c - a batch's way: added, planned, submitted, finished.
 *
 * The steps of a batch are those that are IN_BATCH. What cannot be submitted together is tried a
 * job at a time, so that it fails nobody but its own; what the backend does not have any more is
 * made anew once. While the backend is at work the scheduler serves lanes, and plans ahead.
 */
#include "batch.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/step/step_end.h"

#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* After a submission to a backend that does not say when it has the device. */
#define ANNOUNCE_NS UINT64_C(12000)
/* Streams that may then wait on multiprocessors of the device. If there were as many as it has of
 * these, attention that comes late would never find one that it has for itself. */
#define ANNOUNCE_LANES 12u
#define LEARN_NS 1e6 /* how long a batch takes is learned from those that seem to take so long */

void batch_init(struct batch *b, struct sched_core *core)
{
	*b = (struct batch){.core = core};
	plans_init(&b->plans, core);
}

/* The batch's job of the step's model and layer, or the next. NULL: no memory. */
static struct batch_job *job_of(struct batch *b, const struct step *step)
{
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		if (b->jobs[i].model == step->model && b->jobs[i].layer == step->layer)
			return &b->jobs[i];
	}
	if (GROW_ZEROED(b->jobs, b->jobs_room, b->n_jobs + 1) < 0)
		return NULL;
	b->jobs[b->n_jobs].n_lanes = 0;
	return &b->jobs[b->n_jobs];
}

int batch_add(struct batch *b, struct sched_lane *lane)
{
	struct batch_job *job = job_of(b, &lane->step);

	if (!job || job_add(b->core, job, lane) < 0)
		return -ENOMEM;
	b->n_jobs += job->n_lanes == 1;
	b->alone_ns += lane->step.alone_ns;
	step_move(&b->core->steps, lane, STEP_IN_BATCH);
	return 0;
}

static void batch_clear(struct batch *b)
{
	b->n_jobs = 0;
	b->alone_ns = b->ns = b->device_ns = 0;
	b->sliced = b->in_flight = false;
}

void batch_empty(struct batch *b)
{
	struct sched_lane *lane;

	while ((lane = step_first(&b->core->steps, STEP_IN_BATCH)) != NULL)
		step_move(&b->core->steps, lane, STEP_RUNNABLE);
	batch_clear(b);
}

int batch_add_slice(struct batch *b, struct sched_lane *lane)
{
	int r = batch_add(b, lane);

	if (r < 0)
		return r;
	r = slice_take(&b->slice, &b->plans, &b->jobs[0], lane);
	b->sliced = r == 0;
	if (r < 0)
		batch_empty(b);
	return r;
}

/* ---- to the backend ------------------------------------------------------------------------- */

static int batch_make(struct batch *b)
{
	if (GROW(b->backend_jobs, b->backend_jobs_room, b->n_jobs) < 0)
		return -ENOMEM;
	if (b->sliced)
		return job_plan_slice(&b->plans, &b->jobs[0], &b->slice, b->backend_jobs);
	return jobs_plan(&b->plans, b->jobs, b->n_jobs, b->backend_jobs);
}

/* What a job is modelled to take of the backend, as it was planned, with what its steps' arithmetic
 * takes. */
static double job_ns(const struct batch *b, const struct batch_job *job, double pairs_ns)
{
	double n_tokens = (double)job->plan->list.kv_tokens_read;

	if (b->sliced)
		return b->slice.ns;
	return job->model->cost.fixed_ns + pairs_ns + work_ns(job->model, 0, n_tokens);
}

/* And of the scheduler, before: a plan that is new. Of a slice that is in its time. */
static double job_plan_ns(const struct batch *b, const struct batch_job *job)
{
	if (b->sliced || !job->n_walked)
		return 0;
	return pages_ns(job->model, (double)job->plan->list.kv_tokens_read) +
	       job->n_walked * NODE_NS;
}

/* Each lane's part of a job, by what it would take alone, is its user's. */
static void job_charge(struct batch *b, const struct batch_job *job)
{
	struct sched_core *core = b->core;
	bool all = !b->sliced && step_n_there(&core->steps) == core->steps.n[STEP_IN_BATCH];
	double alone_ns = 0, pairs_ns = 0;

	for (uint32_t i = 0; i < job->n_lanes; i++) {
		alone_ns += job->lanes[i]->step.alone_ns;
		pairs_ns += job->lanes[i]->step.pairs_ns;
	}
	double device_ns = job_ns(b, job, pairs_ns), ns = device_ns + job_plan_ns(b, job);
	double part = ns / alone_ns, most_ns = all ? fmax(ns, budget_ns(core)) : 0;

	b->ns += ns;
	b->device_ns += device_ns;
	for (uint32_t i = 0; i < job->n_lanes; i++) {
		turn_take(core, job->lanes[i], part * job->lanes[i]->step.alone_ns);
		if (all)
			turn_bound_lead(core, job->lanes[i], most_ns);
	}
}

static void count_decode(struct batch *b, const struct batch_job *job)
{
	struct sched_status *stats = &b->core->stats;
	const struct work_shape *shape = &job->model->shape;
	uint64_t token_bytes =
		2ull * shape->n_kv_heads * shape->head_dim * work_dtype_bytes(shape->dtype);

	stats->decode_jobs++;
	stats->decode_sessions += pace_met(job->lanes, job->n_lanes, ++b->n_met);
	stats->decode_kv_bytes_read += job->plan->list.kv_tokens_read * token_bytes;
	stats->decode_kv_bytes_alone += job->plan->list.kv_tokens_alone * token_bytes;
}

static void batch_count(struct batch *b)
{
	struct sched_status *stats = &b->core->stats;

	stats->batches++;
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		job_charge(b, &b->jobs[i]);
		if (!b->sliced)
			count_decode(b, &b->jobs[i]);
		else if (b->jobs[i].lanes[0]->step.kind == STEP_CUT)
			stats->cut_batches++;
		else
			stats->prefill_jobs++;
	}
}

static void batch_end(struct batch *b, struct outcome outcome)
{
	struct sched_lane *lane;

	while ((lane = step_first(&b->core->steps, STEP_IN_BATCH)) != NULL)
		step_fail(b->core, lane, outcome);
	batch_clear(b);
}

/* What streams look at on the device. */
static uint32_t collect_device_words(struct batch *b)
{
	const struct sched_lane *lane;
	uint32_t n = 0;

	if (b->sliced)
		return 0;
	TAILQ_FOREACH (lane, &b->core->steps.lanes[STEP_IN_BATCH], state_link)
		if (lane->step.device_word && n < BACKEND_TELLS_MAX)
			b->device_words[n++] =
				(struct backend_tell){lane->step.device_word, lane->accepted};
	return n;
}

static bool seems_long(const struct batch *b, double modelled_ns)
{
	return modelled_ns * b->core->batches.times >= LEARN_NS;
}

static uint64_t busy_ns(const struct batch *b)
{
	struct backend_counters counters;

	b->core->ops->counters(b->core->backend, &counters);
	return counters.busy_ns;
}

static int submit(struct batch *b, const struct backend_batch *batch)
{
	bool learns = seems_long(b, b->alone_ns);
	int r;

	b->busy_ns = learns ? busy_ns(b) : 0;
	r = b->core->ops->submit(b->core->backend, batch, &b->id);
	b->begun_ns = learns ? core_clock(b->core) : 0;
	return r;
}

/* To choose its blocks the backend is at work, too. */
static int submit_slice(struct batch *b, struct backend_batch *batch)
{
	const struct sparse_slice slice = {b->core, b->slice.rows[0].part, b->slice.chooses,
					   &b->jobs[0], &b->backend_jobs[0]};
	uint64_t start_ns = core_clock(b->core);
	int r = sparse_choose(&b->sparse, &slice, batch);

	b->chose_ns = core_clock(b->core) - start_ns;
	return r ? r : submit(b, batch);
}

static int batch_try(struct batch *b)
{
	int r = batch_make(b);

	if (r < 0)
		return r;
	const struct backend_batch listed = {.jobs = b->backend_jobs,
					     .n_jobs = b->n_jobs,
					     .tells = b->device_words,
					     .n_tells = collect_device_words(b)};
	struct backend_batch batch = listed;

	b->chose_ns = 0;
	if (!b->sliced)
		return submit(b, &batch);
	r = submit_slice(b, &batch);
	if (r != -ENOMEM || batch.jobs == b->backend_jobs)
		return r;
	/* Everything by its list takes less. */
	b->sparse.shares = (struct select_shares){0};
	return submit(b, &listed);
}

/* The backend keeps plans for a while only, and one that has taken in tokens cannot be had from its
 * list again. */
static int batch_start(struct batch *b)
{
	int r = batch_try(b);

	if (r != -ESTALE)
		return r;
	for (uint32_t i = 0; i < b->n_jobs; i++)
		if (b->jobs[i].plan->advanced)
			plan_drop(b->jobs[i].plan);
	return batch_try(b);
}

/* One job alone, the others' steps are runnable as before: a job that cannot be run fails nobody
 * but its own. */
static void batch_shrink(struct batch *b)
{
	for (uint32_t i = 1; i < b->n_jobs; i++)
		for (uint32_t j = 0; j < b->jobs[i].n_lanes; j++)
			step_move(&b->core->steps, b->jobs[i].lanes[j], STEP_RUNNABLE);
	b->n_jobs = 1;
}

void batch_submit(struct batch *b)
{
	int r = batch_start(b);

	if (r < 0 && b->n_jobs > 1) {
		batch_shrink(b);
		r = batch_start(b);
	}
	if (r == -EIO)
		core_fail(b->core);
	if (r < 0) {
		batch_end(b, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
		return;
	}
	batch_count(b);
	for (uint32_t i = 0; i < b->n_jobs; i++)
		if (b->jobs[i].plan->ends_soon)
			job_plan_ahead(&b->plans, &b->jobs[i]);
	b->in_flight = true;
	b->soon_ns = b->sliced ? UINT64_MAX : core_clock(b->core) + ANNOUNCE_NS;
}

/* ---- from the backend ----------------------------------------------------------------------- */

/* The device is at nothing but this batch. */
static bool is_at_work(const struct batch *b)
{
	if (b->core->ops->settled)
		return b->core->ops->settled(b->core->backend, b->id);
	return b->core->now_ns >= b->soon_ns;
}

static void announce_end(struct batch *b)
{
	const struct sched_lane *lane;
	uint32_t n = 0;

	if (b->soon_ns == UINT64_MAX || !is_at_work(b))
		return;
	b->soon_ns = UINT64_MAX;
	TAILQ_FOREACH (lane, &b->core->steps.lanes[STEP_IN_BATCH], state_link) {
		if (n == ANNOUNCE_LANES)
			break;
		if (!lane->step.by_stream)
			continue;
		ring_tell_soon(lane->shared, lane->accepted);
		n++;
	}
}

/* What plans take says nothing of the backend, neither those of the scheduler nor the schedules
 * that a GPU's backend makes of them while it is asked, before the device is at work. A backend
 * that is at work while it is asked counts that itself. */
static void learn(struct batch *b)
{
	uint64_t since_ns = core_clock(b->core) - b->begun_ns;
	uint64_t took_ns = max_u64(since_ns, busy_ns(b) - b->busy_ns) + b->chose_ns;

	slowness_learn(&b->core->batches, SLOWNESS_MAX, b->device_ns, (double)took_ns);
}

bool batch_poll(struct batch *b)
{
	struct sched_core *core = b->core;
	uint64_t completed;

	if (core->ops->completed(core->backend, &completed) < 0) {
		core_fail(core);
		batch_fail(b);
		return true;
	}
	if (completed < b->id) {
		announce_end(b);
		return false;
	}
	if (b->begun_ns && seems_long(b, b->device_ns))
		learn(b);
	if (b->sliced) {
		core->now_ns = core_clock(core);
		for (uint32_t i = 0; i < b->slice.n; i++)
			step_finish_slice(core, b->jobs[0].lanes[0],
					  b->slice.rows[i].row + b->slice.rows[i].n_rows,
					  &b->sparse.shares);
	} else {
		steps_finish(core);
	}
	batch_clear(b);
	return true;
}

void batch_fail(struct batch *b)
{
	batch_end(b, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

void batch_forget_model(struct batch *b, const struct sched_model *model)
{
	for (uint32_t i = 0; i < b->jobs_room; i++) {
		if (b->jobs[i].model == model)
			b->jobs[i].model = NULL;
	}
	plans_forget_model(&b->plans, model);
}

void batch_done(struct batch *b)
{
	plans_done(&b->plans);
	for (uint32_t i = 0; i < b->jobs_room; i++)
		job_done(&b->jobs[i]);
	sparse_done(&b->sparse);
	slice_done(&b->slice);
	free(b->jobs);
	free(b->backend_jobs);
}
