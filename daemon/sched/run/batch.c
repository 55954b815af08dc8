/* batch.c - see batch.h. */
#include "batch.h"

#include "daemon/sched/seq/complete.h"
#include "daemon/base/grow.h"
#include "batch_window.h"
#include "job.h"
#include "daemon/sched/sched_impl.h"
#include "daemon/sched/step/step.h"

#include "proto/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* After a submission to a backend that does not say when it has the device. */
#define TELL_SOON_NS UINT64_C(12000)
/* Streams that may then wait on multiprocessors of the device. If there were as many as it has of
 * these, attention that comes late would never find one that it has for itself. */
#define TELL_SOON_LANES 12u
#define SLICE_PARTIALS_BYTES (UINT64_C(64) << 20)
#define DEVICE_ROWS 4096u
#define SLICE_PAIRS \
	(UINT64_C(192) << 20) /* rows x tokens of a path: with 32 heads of 128 an H200's 6 ms */

/* The batch's job of this model and layer, or a new one. Job i keeps its arrays, and often its
 * plan, from batch to batch. */
static struct batch_job *batch_job(struct sched *s, struct sched_model *model, uint32_t layer)
{
	struct batch *b = &s->batch;

	for (uint32_t i = 0; i < b->n_jobs; i++) {
		if (b->jobs[i].model == model && b->jobs[i].layer == layer)
			return &b->jobs[i];
	}
	if (b->n_jobs == b->jobs_room) {
		struct batch_job *jobs = realloc(b->jobs, (b->jobs_room + 8) * sizeof(*jobs));

		if (!jobs)
			return NULL;
		memset(jobs + b->jobs_room, 0, 8 * sizeof(*jobs));
		b->jobs = jobs;
		b->jobs_room += 8;
	}
	struct batch_job *job = job_choose(b, model);

	b->n_jobs++;
	job_init(s, job, model, layer);
	return job;
}

int batch_add(struct sched *s, struct sched_lane *lane)
{
	struct batch *b = &s->batch;

	if (GROW(b->lanes, b->lanes_room, b->n_lanes + 1) < 0)
		return -ENOMEM;
	struct batch_job *job = batch_job(s, lane->step.model, lane->step.layer);

	if (!job)
		return -ENOMEM;
	job->n_lanes++;
	b->lanes[b->n_lanes++] = lane;
	return 0;
}

/* Rows of a slice: as many as the configuration wants, and fewer where a long context would make
 * their partials many. What wants rows makes few, and gets more. */
static uint32_t slice_rows(const struct sched *s, const struct batch_job *job,
			   const struct step_part *part)
{
	const struct work_shape *shape = &job->model->shape;
	uint64_t end = (uint64_t)store_seq_n_tokens(part->seq->store) + part->n_new;
	uint64_t row_bytes = (end / job->plan.segment_tokens + 2) * shape->n_q_heads *
			     (shape->head_dim + 2) * sizeof(float);
	uint64_t most = SLICE_PARTIALS_BYTES / row_bytes + 1, least = SLICE_PAIRS / end;

	if (!s->ops->wants_rows)
		return most < s->config->prefill_rows ? (uint32_t)most : s->config->prefill_rows;
	least = least < DEVICE_ROWS ? least : DEVICE_ROWS;
	return least > s->config->prefill_rows ? (uint32_t)least : s->config->prefill_rows;
}

int batch_add_slice(struct sched *s, struct sched_lane *lane)
{
	const struct step *step = &lane->step;
	const struct step_part *part = &step->parts[step->next_part];
	uint32_t left = part->n_new - step->next_row;
	int r = batch_add(s, lane);

	if (r < 0)
		return r;
	uint32_t most = part->seq->parents ? left : slice_rows(s, &s->batch.jobs[0], part);

	/* A device that gets little at the end has too little to do for all of it. */
	if (s->ops->wants_rows && left > most) {
		uint32_t n = (left + most - 1) / most;

		most = (left + n - 1) / n;
	}

	s->batch.prefill = true;
	s->batch.slice_part = step->next_part;
	s->batch.slice_row = step->next_row;
	s->batch.slice_rows = left < most ? left : most;
	return 0;
}

/* ---- the batch's way ------------------------------------------------------------------------ */

static int batch_make(struct sched *s)
{
	struct batch *b = &s->batch;

	if (GROW(b->backend_jobs, b->backend_jobs_room, b->n_jobs) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		struct batch_job *job = &b->jobs[i];
		int r = job_make(s, job);

		if (r < 0)
			return r;
		b->backend_jobs[i] = job_for_backend(s, job);
	}
	return 0;
}

static void batch_count(struct sched *s)
{
	struct sched_status *stats = &s->stats;

	stats->batches++;
	for (uint32_t i = 0; i < s->batch.n_jobs; i++) {
		const struct batch_job *job = &s->batch.jobs[i];
		const struct work_shape *shape = &job->model->shape;
		uint64_t token_bytes =
			2ull * shape->n_kv_heads * shape->head_dim * work_dtype_bytes(shape->dtype);

		if (s->batch.prefill) {
			stats->prefill_jobs++;
			continue;
		}
		stats->decode_jobs++;
		stats->decode_sessions += hold_met(s, job);
		stats->decode_kv_bytes_read += job->list.kv_tokens_read * token_bytes;
		stats->decode_kv_bytes_alone += job->list.kv_tokens_alone * token_bytes;
	}
}

static void batch_clear(struct batch *b)
{
	b->n_lanes = b->n_jobs = 0;
	b->prefill = b->in_flight = false;
}

static void batch_end(struct sched *s, struct outcome outcome)
{
	for (uint32_t i = 0; i < s->batch.n_lanes; i++)
		step_fail(s, s->batch.lanes[i], outcome);
	batch_clear(&s->batch);
}

/* What streams look at on the device. */
static uint32_t batch_tells(struct batch *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n_lanes && n < BACKEND_TELLS_MAX && !b->prefill; i++) {
		const struct sched_lane *lane = b->lanes[i];

		if (lane->step.tell)
			b->tells[n++] = (struct backend_tell){lane->step.tell, lane->accepted};
	}
	return n;
}

static int batch_try(struct sched *s)
{
	struct batch *b = &s->batch;
	struct backend_batch batch = {.n_jobs = b->n_jobs,
				      .tells = b->tells,
				      .n_tells = batch_tells(b)};
	int r = batch_make(s);

	batch.jobs = b->backend_jobs;
	if (r == 0 && b->prefill)
		r = sparse_choose(s, &batch);
	if (r < 0)
		return r;
	r = s->ops->submit(s->backend, &batch, &b->id);
	if (r == 0 && b->prefill)
		sparse_count(s);
	if (r != -ENOMEM || batch.jobs == b->backend_jobs)
		return r;
	/* Everything by its list takes less. */
	batch = (struct backend_batch){.jobs = b->backend_jobs, .n_jobs = b->n_jobs};
	return s->ops->submit(s->backend, &batch, &b->id);
}

/* The backend keeps plans for a while only, and one that has taken in tokens cannot be had from its
 * list again. */
static int batch_start(struct sched *s)
{
	int r = batch_try(s);

	if (r != -ESTALE)
		return r;
	for (uint32_t i = 0; i < s->batch.n_jobs; i++)
		s->batch.jobs[i].n_planned *= !s->batch.jobs[i].advanced;
	return batch_try(s);
}

/* One job alone, the others' steps stay parked: a job that cannot be run fails nobody but its
 * own. */
static void batch_shrink(struct sched *s)
{
	struct batch *b = &s->batch;
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n_lanes; i++) {
		if (b->lanes[i]->step.model == b->jobs[0].model &&
		    b->lanes[i]->step.layer == b->jobs[0].layer)
			b->lanes[n++] = b->lanes[i];
	}
	b->n_lanes = n;
	b->n_jobs = 1;
	s->hold_stale = true;
}

/* While the device is at work. Once a token at most, should it fail. */
static void batch_renew(struct sched *s)
{
	for (uint32_t i = 0; i < s->batch.n_jobs; i++) {
		if (s->batch.jobs[i].ends_soon)
			renewal_begin(s, &s->batch.jobs[i]);
		s->batch.jobs[i].ends_soon = false;
	}
}

void batch_submit(struct sched *s)
{
	struct batch *b = &s->batch;
	int r = batch_start(s);

	if (r < 0 && b->n_jobs > 1) {
		batch_shrink(s);
		r = batch_start(s);
	}
	if (r == -EIO)
		sched_fail(s);
	if (r < 0) {
		batch_end(s, outcome_bad(r, r == -ENOMEM ? ABI_NO_MEMORY : ABI_BACKEND_FAILED, 0));
		return;
	}
	batch_count(s);
	batch_renew(s);
	b->in_flight = true;
	b->soon_ns = b->prefill ? UINT64_MAX : s->clock() + TELL_SOON_NS;
}

/* The slice is done: the step goes on with the next rows or part, or is done. */
static void slice_finish(struct sched *s, struct sched_lane *lane)
{
	struct step *step = &lane->step;

	step->next_row = s->batch.slice_row + s->batch.slice_rows;
	if (step->next_row < step->parts[step->next_part].n_new)
		return;
	step->next_row = 0;
	if (++step->next_part == step->n_parts)
		step_finish(s, lane);
}

static bool is_settled(struct sched *s)
{
	if (s->ops->settled)
		return s->ops->settled(s->backend, s->batch.id);
	return s->now_ns >= s->batch.soon_ns;
}

static void batch_tell_soon(struct sched *s)
{
	struct batch *b = &s->batch;
	uint32_t n_told = 0;

	if (b->soon_ns == UINT64_MAX || !is_settled(s))
		return;
	b->soon_ns = UINT64_MAX;
	for (uint32_t i = 0; i < b->n_lanes && n_told < TELL_SOON_LANES; i++) {
		if (!b->lanes[i]->step.on_stream)
			continue;
		ring_tell_soon(b->lanes[i]->shared, b->lanes[i]->accepted);
		n_told++;
	}
}

bool batch_poll(struct sched *s)
{
	struct batch *b = &s->batch;
	uint64_t completed;

	if (s->ops->completed(s->backend, &completed) < 0) {
		sched_fail(s);
		batch_fail(s);
		return true;
	}
	if (completed < b->id) {
		batch_tell_soon(s);
		return false;
	}
	for (uint32_t i = 0; i < b->n_lanes && !b->prefill; i++)
		step_tell(s, b->lanes[i]);
	s->now_ns = s->clock();
	for (uint32_t i = 0; i < b->n_lanes; i++) {
		if (b->prefill)
			slice_finish(s, b->lanes[i]);
		else
			step_finish(s, b->lanes[i]);
	}
	batch_clear(b);
	return true;
}

void batch_fail(struct sched *s)
{
	batch_end(s, outcome_bad(-EIO, ABI_BACKEND_FAILED, 0));
}

void batch_forget_model(struct batch *b, const struct sched_model *model)
{
	for (uint32_t i = 0; i < b->jobs_room; i++) {
		if (b->jobs[i].model == model)
			b->jobs[i].model = NULL;
	}
	renewal_forget_model(&b->renewal, model);
}

void batch_done(struct batch *b)
{
	renewal_done(&b->renewal);
	for (uint32_t i = 0; i < b->jobs_room; i++)
		job_done(&b->jobs[i]);
	sparse_done(&b->sparse);
	free(b->jobs);
	free(b->backend_jobs);
	free(b->lanes);
}
