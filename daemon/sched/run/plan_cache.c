/*
 * plan_cache.c - which plan serves these sequences.
 *
 * A plan fits where its sequences are the same, in the same order, on paths that did not change,
 * with as many new tokens; and where some have grown since, by tokens each of which came alone and
 * lies in its path's last node: the backend can take such tokens in. The
 * order counts, as rows of a plan stand for queries by their number.
 */
#include "plan_cache.h"

#include "daemon/base/grow.h"

#include "kernels/plan/plan.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

#define PLANS_AT_ONCE 8u /* there are so many, or a multiple */

struct plan *plan_new(void)
{
	return calloc(1, sizeof(struct plan));
}

void plan_free(struct plan *plan)
{
	if (!plan)
		return;
	plan_list_done(&plan->list);
	free(plan->nodes);
	free(plan->slices);
	free(plan->queries);
	free(plan->planned);
	free(plan);
}

void plan_drop(struct plan *plan)
{
	plan->n_planned = 0;
	plan->used = 0;
	plan->taken = false;
}

uint32_t plan_query_fit(const struct plan_query *planned, const struct plan_query *now,
			uint32_t most)
{
	uint32_t later = now->n_tokens - planned->n_tokens;

	if (now->handle != planned->handle || now->path_version != planned->path_version ||
	    now->n_new != planned->n_new || now->only_appends != planned->only_appends)
		return PLAN_FITS_NOT;
	return later == 0 || (later <= most && later <= now->n_last) ? later : PLAN_FITS_NOT;
}

uint32_t plan_fit(const struct plan *plan, const struct plan_key *key, uint32_t most)
{
	uint32_t fit = 0;

	if (plan->model != key->model || plan->n_planned != key->n_queries)
		return PLAN_FITS_NOT;
	for (uint32_t q = 0; q < key->n_queries; q++) {
		uint32_t later = plan_query_fit(&plan->planned[q], &key->queries[q], most);

		if (later == PLAN_FITS_NOT)
			return PLAN_FITS_NOT;
		fit = max_u32(later, fit);
	}
	return fit;
}

int plan_cache_begin(struct plan_cache *c, uint32_t n_jobs)
{
	uint32_t n = (uint32_t)round_up(n_jobs, PLANS_AT_ONCE);

	for (uint32_t i = 0; i < c->n_plans; i++)
		c->plans[i]->taken = false;
	if (GROW(c->plans, c->plans_room, n) < 0)
		return -ENOMEM;
	for (; c->n_plans < n; c->n_plans++) {
		c->plans[c->n_plans] = plan_new();
		if (!c->plans[c->n_plans])
			return -ENOMEM;
	}
	return 0;
}

struct plan *plan_cache_take(struct plan_cache *c, struct plan *plan)
{
	plan->used = ++c->n_uses;
	plan->taken = true;
	return plan;
}

struct plan *plan_cache_get(struct plan_cache *c, const struct plan_key *key, uint32_t *ret_later)
{
	for (uint32_t i = 0; i < c->n_plans; i++) {
		uint32_t later =
			c->plans[i]->taken ? PLAN_FITS_NOT : plan_fit(c->plans[i], key, PLAN_LATER);

		if (later == PLAN_FITS_NOT)
			continue;
		*ret_later = later;
		return plan_cache_take(c, c->plans[i]);
	}
	return NULL;
}

static struct plan **oldest(struct plan_cache *c)
{
	struct plan **oldest = NULL;

	for (uint32_t i = 0; i < c->n_plans; i++) {
		if (!c->plans[i]->taken && (!oldest || c->plans[i]->used < (*oldest)->used))
			oldest = &c->plans[i];
	}
	return oldest;
}

struct plan *plan_cache_take_oldest(struct plan_cache *c)
{
	struct plan *plan = *oldest(c);

	plan_drop(plan);
	return plan_cache_take(c, plan);
}

struct plan *plan_cache_exchange(struct plan_cache *c, struct plan **plan)
{
	struct plan **place = oldest(c), *was = *place;

	*place = *plan;
	*plan = was;
	return plan_cache_take(c, *place);
}

uint64_t plan_cache_drop(struct plan_cache *c, const struct plan_key *key)
{
	uint64_t id = 0;

	for (uint32_t i = 0; i < c->n_plans; i++) {
		if (c->plans[i]->taken || plan_fit(c->plans[i], key, PLAN_LATER) == PLAN_FITS_NOT)
			continue;
		id = c->plans[i]->id;
		plan_drop(c->plans[i]);
	}
	return id;
}

void plan_cache_forget_model(struct plan_cache *c, const struct sched_model *model)
{
	for (uint32_t i = 0; i < c->n_plans; i++) {
		if (c->plans[i]->model != model)
			continue;
		c->plans[i]->model = NULL;
		plan_drop(c->plans[i]);
	}
}

void plan_cache_done(struct plan_cache *c)
{
	for (uint32_t i = 0; i < c->n_plans; i++)
		plan_free(c->plans[i]);
	free(c->plans);
	*c = (struct plan_cache){0};
}
