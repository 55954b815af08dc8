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

#define MERGE_ALONE 8u /* partials of a row that one warp folds */

void plan_drop_tails(struct batch_plan *plan)
{
	free(plan->tails);
	program_growth_done(&plan->growth);
	plan->tails = NULL;
	plan->n_tails = 0;
}

size_t plan_bytes(const struct program *p)
{
	size_t bytes = 0;

	for (int i = 0; i < PROGRAM_N_ARRAYS; i++)
		bytes += align_up(p->n[i] * program_entry_bytes(i));
	return bytes;
}

/* Tells the plan where its arrays are. */
static void place_program(struct batch_plan *plan, const struct program *p)
{
	uint64_t *at = plan->arrays, next = (uintptr_t)plan->device.at;

	for (int i = 0; i < PROGRAM_N_ARRAYS; i++) {
		at[i] = next;
		next += align_up(p->n[i] * program_entry_bytes(i));
	}
	plan->attend = (struct device_attend){
		.units = (const void *)(uintptr_t)at[PROGRAM_UNITS],
		.slots = (const void *)(uintptr_t)at[PROGRAM_SLOTS],
		.sources = (const void *)(uintptr_t)at[PROGRAM_SOURCES],
		.firsts = (const void *)(uintptr_t)at[PROGRAM_FIRSTS],
		.dests = (const void *)(uintptr_t)at[PROGRAM_DESTS],
		.merges = (const void *)(uintptr_t)at[PROGRAM_MERGES],
		.n_units = p->n[PROGRAM_UNITS],
		.n_slots = p->n[PROGRAM_SLOTS],
		.n_dests = p->n[PROGRAM_DESTS],
		.n_merges = p->n[PROGRAM_MERGES],
		.merge_warps_log2 = p->most_parts > MERGE_ALONE ? 2 : 0,
	};
	plan->n_parts = p->n_parts;
	plan->n_groups = p->n_groups;
}

struct batch_plan *plan_find(struct batch *b, uint64_t plan_id, const struct work_shape *shape)
{
	for (uint32_t i = 0; plan_id && i < BATCH_PLANS; i++) {
		struct batch_plan *plan = &b->plans[i];

		if (plan->plan_id == plan_id && memcmp(&plan->shape, shape, sizeof(*shape)) == 0)
			return plan;
	}
	return NULL;
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
	plan->device = (struct batch_buffer){0};
	plan->plan_id = 0;
	plan->used = 0;
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

/* Whose place a plan of so many bytes takes: memory that would have to go is best taken over. */
static struct batch_plan *find_place(struct batch *b, size_t bytes)
{
	struct batch_plan *plan = oldest_plan(b), *old;
	bool fits = plans_bytes(b) - plan->device.bytes + device_room(bytes) <= BATCH_PLANS_BYTES;

	if (bytes <= plan->device.bytes || fits)
		return plan;
	old = oldest_with_memory(b);
	return old ? old : plan;
}

/* The plan gets memory, what it had is lost. All stay within their bounds, if need be without those
 * of others. */
static int plan_grow(struct batch *b, struct batch_plan *plan, size_t bytes)
{
	size_t room = device_room(bytes);
	struct batch_plan *old;

	if (bytes <= plan->device.bytes && plans_bytes(b) <= BATCH_PLANS_BYTES)
		return 0;
	/* what runs may read any of them */
	if (batch_await(b) != 0)
		return -EIO;
	plan_free(plan);
	while (plans_bytes(b) + room > BATCH_PLANS_BYTES && (old = oldest_with_memory(b)) != NULL)
		plan_free(old);
	return batch_grow(b, &plan->device, bytes, false);
}

/* ---- plans ---------------------------------------------------------------------------------- */

int plan_keep_tails(struct batch_plan *plan, const struct program *p, uint32_t n_rows)
{
	plan_drop_tails(plan);
	if (!p->tails)
		return 0;
	plan->tails = malloc((n_rows + 1) * sizeof(*plan->tails));
	if (!plan->tails || program_growth_init(&plan->growth, p) != 0) {
		plan_drop_tails(plan);
		return -ENOMEM;
	}
	memcpy(plan->tails, p->tails, n_rows * sizeof(*plan->tails));
	plan->n_tails = n_rows;
	return 0;
}

/* One new token each, at the end of a path of its own. */
static bool may_advance(const struct backend_job *job)
{
	if (job->plan_id == 0)
		return false;
	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		if (job->tree->queries[i].n_rows != 1 || job->tree->queries[i].parents)
			return false;
	}
	return true;
}

/* 0, or BACKEND_SOON: a row has come to the last group that was set aside for it. */
static int advance_rows(const struct batch *b, struct batch_plan *plan,
			const struct backend_job *job)
{
	struct program_pages pages = shape_pages(b, job->shape);
	bool soon = false;

	for (uint32_t i = 0; i < plan->n_tails; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct work_slice *slot = job->io[row->query].slots;
		int r;

		if (job->io[row->query].n_slots == 0)
			continue;
		if (job->io[row->query].n_slots != 1 || slot->count != 1)
			return -ESTALE;
		r = program_advance(&plan->tails[i], row->pos,
				    shape_source(job->shape, &pages, slot->page, slot->first),
				    &plan->growth);
		if (r)
			return r;
		soon = soon || plan->tails[i].used == PROGRAM_TAIL_GROUPS;
	}
	return soon ? BACKEND_SOON : 0;
}

int batch_advance(struct batch *b, const struct backend_job *job)
{
	struct batch_plan *plan = plan_find(b, job->plan_id, job->shape);
	struct batch_ahead *ahead = plan ? NULL : ahead_find(b, job);
	int r;

	plan = ahead ? &ahead->plan : plan;
	if (!plan || plan->n_tails == 0 || plan->n_tails != job->list->n_rows)
		return -ESTALE;
	r = advance_rows(b, plan, job);
	if (r < 0)
		plan->plan_id = 0; /* half advanced: of no use to anyone */
	return r;
}

/* ---- plans of a batch ----------------------------------------------------------------------- */

struct program_want plan_want(const struct batch *b, const struct backend_job *job,
			      uint32_t n_blocks)
{
	return (struct program_want){
		.shape = job->shape,
		.list = job->list,
		.pages = shape_pages(b, job->shape),
		.costs = b->costs,
		.choice = b->choice,
		.n_blocks = n_blocks,
		.wide = b->wide && job->shape->head_dim <= 128,
		.tails = may_advance(job),
	};
}

int plan_prepare(struct batch *b, const struct backend_job *job, const bool *wanted,
		 struct batch_plan **ret)
{
	struct batch_ahead *ahead = wanted ? NULL : ahead_find(b, job);
	struct program_want want = plan_want(b, job, b->n_blocks);
	struct batch_plan *plan;
	int r = 0;

	want.wanted = wanted;
	want.tails = want.tails && !wanted;
	if (ahead)
		ahead_take_program(ahead, &b->program);
	else
		r = program_make(&b->program, &want);
	if (r)
		return r;
	plan = find_place(b, plan_bytes(&b->program));
	plan->plan_id = 0;
	if (ahead)
		ahead_take_tails(ahead, plan);
	else
		r = plan_keep_tails(plan, &b->program, job->list->n_rows);
	if (r)
		return r;
	r = plan_grow(b, plan, plan_bytes(&b->program));
	if (r)
		return r;
	plan->plan_id = wanted ? 0 : job->plan_id;
	memcpy(&plan->shape, job->shape, sizeof(plan->shape));
	place_program(plan, &b->program);
	*ret = plan;
	return 0;
}
