/*
 * batch_plan.c - one plan: what the planner is told, where the schedule's arrays lie on the device,
 * and the tails by which it takes in tokens. A plan without tails cannot be advanced. See
 * batch_impl.h.
 */
#include "batch_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MERGE_ALONE 8u /* partials of a row that one warp folds */

void plan_drop_tails(struct batch_plan *plan)
{
	free(plan->tails);
	schedule_growth_done(&plan->growth);
	plan->tails = NULL;
	plan->n_tails = 0;
}

size_t plan_bytes(const struct schedule *p)
{
	size_t bytes = 0;

	for (int i = 0; i < SCHEDULE_N_ARRAYS; i++)
		bytes += align_up(p->n[i] * schedule_entry_bytes(i));
	return bytes;
}

void plan_place(struct batch_plan *plan, const struct schedule *p)
{
	uint64_t *at = plan->arrays, next = (uintptr_t)plan->device.at;

	for (int i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		at[i] = next;
		next += align_up(p->n[i] * schedule_entry_bytes(i));
	}
	plan->attend = (struct device_attend){
		.work_tiles = (const void *)(uintptr_t)at[SCHEDULE_WORK_TILES],
		.kv_tiles = (const void *)(uintptr_t)at[SCHEDULE_KV_TILES],
		.sources = (const void *)(uintptr_t)at[SCHEDULE_SOURCES],
		.firsts = (const void *)(uintptr_t)at[SCHEDULE_FIRSTS],
		.dests = (const void *)(uintptr_t)at[SCHEDULE_DESTS],
		.merges = (const void *)(uintptr_t)at[SCHEDULE_MERGES],
		.n_work_tiles = p->n[SCHEDULE_WORK_TILES],
		.n_kv_tiles = p->n[SCHEDULE_KV_TILES],
		.n_dests = p->n[SCHEDULE_DESTS],
		.n_merges = p->n[SCHEDULE_MERGES],
		.merge_warps_log2 = p->most_parts > MERGE_ALONE ? 2 : 0,
	};
	plan->n_parts = p->n_parts;
	plan->n_kv_blocks = p->n_kv_blocks;
}

int plan_keep_tails(struct batch_plan *plan, const struct schedule *p, uint32_t n_rows)
{
	plan_drop_tails(plan);
	if (!p->tails)
		return 0;
	plan->tails = malloc((n_rows + 1) * sizeof(*plan->tails));
	if (!plan->tails || schedule_growth_init(&plan->growth, p) != 0) {
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
	if (job->plan_id == 0 || job->list->bounded)
		return false;
	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		if (job->tree->queries[i].n_rows != 1 || job->tree->queries[i].parents)
			return false;
	}
	return true;
}

struct schedule_want plan_want(const struct batch *b, const struct backend_job *job,
			       uint32_t n_blocks)
{
	return (struct schedule_want){
		.shape = job->shape,
		.list = job->list,
		.pages = shape_pages(b->pool, job->shape),
		.costs = b->costs,
		.choice = b->choice,
		.n_blocks = n_blocks,
		.code = b->code,
		.tails = may_advance(job),
	};
}
