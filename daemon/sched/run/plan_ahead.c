/*
 * plan_ahead.c - the next plan, made on a thread of its own.
 *
 * `state` is the hand-over. While it is MAKING the plan is the thread's, and what it reads beside
 * that (the backend's own planner, a model's shape) does not change; at any other time the plan is
 * the scheduler's. The thread alone turns MAKING into something else, and the scheduler waits for
 * it only where a model or everything goes.
 */
#include "plan_ahead.h"

#include "kernels/plan/plan.h"

#define TURN_USES 1024u /* of plans, after which who has not taken one will not */

static int make_plan(const struct plan_ahead *a)
{
	struct plan *plan = a->plan;
	int r = plan_make(&plan->config, &plan->tree, &plan->list);
	const struct backend_job planned = {.shape = &plan->model->shape,
					    .tree = &plan->tree,
					    .list = &plan->list,
					    .plan_id = plan->id};

	return r < 0 ? r : a->core->ops->prepare(a->core->backend, &planned);
}

static void run(void *ctx)
{
	struct plan_ahead *a = ctx;

	atomic_store(&a->state, make_plan(a) < 0 ? PLAN_AHEAD_NONE : PLAN_AHEAD_MADE);
}

void plan_ahead_init(struct plan_ahead *a, struct sched_core *core, struct plan_cache *cache)
{
	*a = (struct plan_ahead){.core = core, .cache = cache};
	aside_init(&a->aside, "coppice-plan");
}

/* Are its sequences still where it may serve their next tokens? */
static bool may_serve(const struct sched_core *core, const struct plan *plan)
{
	for (uint32_t i = 0; i < plan->n_planned; i++) {
		const struct plan_query *planned = &plan->planned[i];
		const struct sched_seq *seq = handle_seq(&core->seqs, planned->handle);

		if (!seq || store_seq_path_version(seq->store) != planned->path_version ||
		    store_seq_n_tokens(seq->store) - planned->n_tokens > PLAN_LATER)
			return false;
	}
	return true;
}

/* What has been made is for other lanes, whose turn comes. */
static bool is_spoken_for(const struct plan_ahead *a, const struct plan *plan)
{
	return plan_ahead_is_made(a) && !a->plan->foreseen &&
	       a->plan->planned[0].handle != plan->planned[0].handle &&
	       a->cache->n_uses - a->begun < TURN_USES && may_serve(a->core, a->plan);
}

struct plan *plan_ahead_next(struct plan_ahead *a, const struct plan *plan)
{
	if (!a->core->ops->prepare || atomic_load(&a->state) == PLAN_AHEAD_MAKING ||
	    is_spoken_for(a, plan))
		return NULL;
	a->begun = a->cache->n_uses;
	atomic_store(&a->state, PLAN_AHEAD_NONE);
	if (!a->plan)
		a->plan = plan_new();
	return a->plan;
}

void plan_ahead_start(struct plan_ahead *a)
{
	atomic_store(&a->state, PLAN_AHEAD_MAKING);
	aside_begin(&a->aside, run, a);
}

struct plan *plan_ahead_take(struct plan_ahead *a, const struct plan_key *key, uint32_t *ret_later)
{
	uint32_t later = plan_fit(a->plan, key, PLAN_LATER);

	if (later == PLAN_FITS_NOT)
		return NULL;
	atomic_store(&a->state, PLAN_AHEAD_NONE);
	*ret_later = later;
	a->core->stats.plans_ahead++;
	return plan_cache_exchange(a->cache, &a->plan);
}

void plan_ahead_forget_model(struct plan_ahead *a, const struct sched_model *model)
{
	if (!a->plan || a->plan->model != model)
		return;
	aside_end(&a->aside);
	atomic_store(&a->state, PLAN_AHEAD_NONE);
	a->plan->model = NULL;
	plan_drop(a->plan);
}

void plan_ahead_done(struct plan_ahead *a)
{
	aside_done(&a->aside);
	plan_free(a->plan);
}
