/*
 * batch_plan.c - one plan: what the planner is told, where the program's arrays lie on the device,
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

void plan_place(struct batch_plan *plan, const struct program *p)
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
	if (job->plan_id == 0 || job->list->bounded)
		return false;
	for (uint32_t i = 0; i < job->tree->n_queries; i++) {
		if (job->tree->queries[i].n_rows != 1 || job->tree->queries[i].parents)
			return false;
	}
	return true;
}

struct program_want plan_want(const struct batch *b, const struct backend_job *job,
			      uint32_t n_blocks)
{
	return (struct program_want){
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
