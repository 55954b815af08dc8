/*
 * batch_plans.c - plans that are kept on the device, and take in tokens. There are few: who needs
 * another takes the place of one that nobody can ask for again, or else of the one that was used
 * longest ago. See batch_impl.h.
 */
#include "batch_impl.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct batch_plan *plan_find(struct batch *b, uint64_t plan_id, const struct work_shape *shape)
{
	for (uint32_t i = 0; plan_id && i < BATCH_PLANS; i++) {
		struct batch_plan *plan = &b->plans[i];

		if (plan->plan_id == plan_id && memcmp(&plan->shape, shape, sizeof(*shape)) == 0)
			return plan;
	}
	return NULL;
}

void plan_use(struct batch *b, struct batch_plan *plan)
{
	plan->used = plan->plan_id || plan->schedule_id ? ++b->uses : 0;
}

void plan_forget(struct batch_plan *plan)
{
	plan->plan_id = plan->schedule_id = plan->used = 0;
}

/* ---- room on the device --------------------------------------------------------------------- */

static size_t plans_bytes(const struct batch *b)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < BATCH_PLANS; i++)
		bytes += b->plans[i].device.bytes;
	return bytes;
}

static void plan_free(struct batch_plan *plan)
{
	cudaFree(plan->device.at);
	plan->device = (struct queue_buffer){0};
	plan_forget(plan);
}

/* One that has memory and that the batch at hand has not used; NULL: none. */
static struct batch_plan *oldest_with_memory(struct batch *b)
{
	struct batch_plan *oldest = NULL;

	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		struct batch_plan *plan = &b->plans[i];

		if (plan->device.bytes && plan->used <= b->uses_before &&
		    (!oldest || plan->used < oldest->used))
			oldest = plan;
	}
	return oldest;
}

static struct batch_plan *oldest_plan(struct batch *b)
{
	struct batch_plan *oldest = &b->plans[0];

	for (uint32_t i = 1; i < BATCH_PLANS; i++) {
		if (b->plans[i].used < oldest->used)
			oldest = &b->plans[i];
	}
	return oldest;
}

/* ---- of plans that no id names --------------------------------------------------------------- */

static bool is_unnamed(const struct batch_plan *plan)
{
	return plan->plan_id == 0 && plan->schedule_id != 0;
}

/* May there be another, of so many bytes? */
static bool unnamed_fit(const struct batch *b, size_t bytes)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		if (!is_unnamed(&b->plans[i]))
			continue;
		bytes += b->plans[i].device.bytes;
		n++;
	}
	return n <= BATCH_UNNAMED && bytes <= BATCH_UNNAMED_BYTES;
}

/* One of them, or NULL: that which was used longest ago, if nobody will ask for it again; else the
 * last, as of many that go round the others are found then. */
static struct batch_plan *unnamed_to_go(struct batch *b)
{
	struct batch_plan *first = NULL, *last = NULL;

	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		struct batch_plan *plan = &b->plans[i];

		if (!is_unnamed(plan))
			continue;
		first = !first || plan->used < first->used ? plan : first;
		last = !last || plan->used > last->used ? plan : last;
	}
	return first && b->uses - first->used > BATCH_UNNAMED_PATIENCE ? first : last;
}

/* ---- whose place ----------------------------------------------------------------------------- */

/* One that nobody asks for again, with so much memory; NULL: none. */
static struct batch_plan *find_free(struct batch *b, size_t bytes)
{
	for (uint32_t i = 0; i < BATCH_PLANS; i++)
		if (b->plans[i].used == 0 && b->plans[i].device.bytes >= bytes)
			return &b->plans[i];
	return NULL;
}

/* That of the oldest. Memory that would have to go is best taken over. */
static struct batch_plan *find_any(struct batch *b, size_t bytes)
{
	struct batch_plan *plan = oldest_plan(b), *old;
	bool fits = plans_bytes(b) - plan->device.bytes + queue_room(bytes) <= BATCH_PLANS_BYTES;

	if (bytes <= plan->device.bytes || fits)
		return plan;
	old = oldest_with_memory(b);
	return old ? old : plan;
}

/* Whose place a plan of so many bytes takes: that of the plan which it replaces, if that has room
 * and the batch at hand has not used it, as to get memory takes longer than a layer. Those that no
 * id names have some of the places and some of the memory. */
static struct batch_plan *find_place(struct batch *b, size_t bytes, const struct backend_job *job,
				     uint64_t schedule_id)
{
	struct batch_plan *plan = plan_find(b, job->replaces, job->shape);

	if (plan && bytes <= plan->device.bytes && plan->used <= b->uses_before)
		return plan;
	plan = NULL;
	if (schedule_id && !unnamed_fit(b, queue_room(bytes)))
		plan = unnamed_to_go(b);
	else if (job->plan_id == 0)
		plan = find_free(b, bytes);
	return plan ? plan : find_any(b, bytes);
}

/* The plan gets memory, what it had is lost. All stay within their bounds, if need be without those
 * of others. */
static int plan_grow(struct batch *b, struct batch_plan *plan, size_t bytes, uint64_t schedule_id)
{
	size_t room = queue_room(bytes);
	struct batch_plan *old;

	if (bytes <= plan->device.bytes && plans_bytes(b) <= BATCH_PLANS_BYTES)
		return 0;
	/* what runs may read any of them */
	if (queue_await(&b->queue) != 0)
		return -EIO;
	plan_free(plan);
	while (schedule_id && !unnamed_fit(b, room) && (old = unnamed_to_go(b)) != NULL)
		plan_free(old);
	while (plans_bytes(b) + room > BATCH_PLANS_BYTES && (old = oldest_with_memory(b)) != NULL)
		plan_free(old);
	return queue_grow(&b->queue, &plan->device, bytes);
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* 0, or BACKEND_SOON: a row has come to the last KV block that was set aside for it. */
static int advance_rows(const struct batch *b, struct batch_plan *plan,
			const struct backend_job *job)
{
	struct pool_pages pages = shape_pages(b->pool, job->shape);
	uint32_t n_each = row_map_of(job->shape).n;
	bool soon = false;

	for (uint32_t i = 0; i < plan->n_tails; i++) {
		const struct work_row *row = &job->list->rows[i / n_each];
		const struct work_slice *slot = job->io[row->query].slots;
		uint32_t n_slots = job->io[row->query].n_slots;
		int r = 0;

		if (n_slots == 0)
			r = schedule_pass(&plan->tails[i], row->pos);
		else if (n_slots != 1 || slot->count != 1)
			r = -ESTALE;
		else
			r = schedule_advance(&plan->tails[i], row->pos,
					     shape_source(job->shape, &pages, slot->page,
							  slot->first),
					     &plan->growth);
		if (r)
			return r;
		soon = soon || plan->tails[i].used == SCHEDULE_TAIL_KV_BLOCKS;
	}
	return soon ? BACKEND_SOON : 0;
}

int batch_advance(struct batch *b, const struct backend_job *job)
{
	struct batch_plan *plan = plan_find(b, job->plan_id, job->shape);
	struct batch_ahead *ahead = plan ? NULL : ahead_find(b, job);
	int r;

	plan = ahead ? &ahead->plan : plan;
	if (!plan || plan->n_tails == 0 || plan->n_tails != job_n_rows(job))
		return -ESTALE;
	r = advance_rows(b, plan, job);
	if (r < 0)
		plan->plan_id = 0; /* half advanced: of no use to anyone */
	return r;
}

/* ---- plans of a batch ----------------------------------------------------------------------- */

/* May the same rows come again, though nobody says so? Those of some heads have blocks chosen for
 * them. */
static bool may_repeat(const struct backend_job *job, const bool *wanted)
{
	return job->plan_id == 0 && !wanted && job->n_heads == 0;
}

/* What the job's plan is made of: made now, or for a layer before it. */
static int find_schedule(struct batch *b, const struct backend_job *job, const bool *wanted,
			 const struct schedule **ret, uint64_t *ret_id)
{
	struct schedule_want want = plan_want(b, job, b->n_blocks);

	*ret = &b->schedule;
	*ret_id = 0;
	if (may_repeat(job, wanted))
		return schedule_cache_get(&b->schedules, &want, &b->schedule, ret, ret_id);
	want.wanted = wanted;
	want.tails = want.tails && !wanted;
	return schedule_make(&b->schedule, &want);
}

/* The plan by which the device has the cache's schedule; NULL: none. */
static struct batch_plan *find_plan_of(struct batch *b, uint64_t schedule_id)
{
	for (uint32_t i = 0; schedule_id && i < BATCH_PLANS; i++)
		if (b->plans[i].schedule_id == schedule_id)
			return &b->plans[i];
	return NULL;
}

/* A plan with room for the schedule. 0, -ENOMEM, -EIO. */
static int take_place(struct batch *b, const struct backend_job *job, const struct schedule *p,
		      uint64_t schedule_id, struct batch_ahead *ahead, struct batch_plan **ret)
{
	struct batch_plan *plan = find_place(b, plan_bytes(p), job, schedule_id);
	int r = 0;

	plan_forget(plan);
	if (ahead)
		ahead_take_tails(ahead, plan);
	else
		r = plan_keep_tails(plan, p, job_n_rows(job));
	if (!r)
		r = plan_grow(b, plan, plan_bytes(p), schedule_id);
	if (r)
		return r;
	memcpy(&plan->shape, job->shape, sizeof(plan->shape));
	plan_place(plan, p);
	plan->schedule_id = schedule_id;
	*ret = plan;
	return 0;
}

int plan_prepare(struct batch *b, const struct backend_job *job, const bool *wanted,
		 struct batch_plan **ret, const struct schedule **ret_schedule)
{
	struct batch_ahead *ahead = wanted ? NULL : ahead_find(b, job);
	const struct schedule *schedule = &b->schedule;
	uint64_t schedule_id = 0;
	int r = 0;

	if (ahead)
		ahead_take_schedule(ahead, &b->schedule);
	else
		r = find_schedule(b, job, wanted, &schedule, &schedule_id);
	*ret = find_plan_of(b, schedule_id);
	*ret_schedule = *ret ? NULL : schedule;
	if (r || *ret)
		return r;
	r = take_place(b, job, schedule, schedule_id, ahead, ret);
	if (r)
		return r;
	(*ret)->plan_id = wanted ? 0 : job->plan_id;
	return 0;
}
