/*
 * job.c - what is in a job, and whose plan serves it.
 *
 * Tree and plan belong together and live in the plan cache; addresses change from layer to layer
 * and are the job's. A plan that served a token earlier takes the new one in: the backend is told
 * where it lies, tree and list are not made anew. One that has more sequences than have come may
 * serve, too: job_wide.c.
 */
#include "job.h"

#include "job_tree.h"
#include "job_wide.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"

#include "kernels/program/backend_program.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void plans_init(struct plans *p, struct sched_core *core)
{
	*p = (struct plans){.core = core};
	plan_ahead_init(&p->ahead, core, &p->cache);
}

void plans_forget_model(struct plans *p, const struct sched_model *model)
{
	plan_cache_forget_model(&p->cache, model);
	plan_ahead_forget_model(&p->ahead, model);
}

void plans_done(struct plans *p)
{
	free(p->path);
	free(p->ends);
	plan_ahead_done(&p->ahead);
	plan_cache_done(&p->cache);
}

static struct backend_job for_backend(const struct batch_job *job)
{
	const struct plan *plan = job->plan;

	return (struct backend_job){.shape = &job->model->shape,
				    .tree = &plan->tree,
				    .list = &plan->list,
				    .io = job->io,
				    .plan_id = plan->id,
				    .replaces = plan->replaces,
				    .advanced = plan->advanced,
				    .layer = job->layer};
}

/* ---- tokens that came since the plan was made ----------------------------------------------- */

/* Since it was planned for, or has been seen last. */
static uint32_t n_later(const struct batch_job *job, uint32_t query)
{
	return job->queries[query].n_tokens - job->plan->planned[query].n_tokens;
}

/* Where its last n tokens are, of which a new one is the last, behind the tree's slices. */
static int add_since(struct plan *plan, const struct step_part *part, uint32_t n)
{
	const struct store_seq *store = part->seq->store;
	const struct store_node *node = store_seq_node(store);
	uint32_t n_slices, n_new = part->n_new, n_before = store_node_n_tokens(node) - (n - n_new);
	int r = tree_add_each_token(plan, store_node_slices(node, &n_slices), n_before, n - n_new);

	if (r < 0 || n_new == 0)
		return r;
	return tree_add_each_token(plan, store_seq_slots(store, &n_slices), 0, 1);
}

/* Where all the tokens are that the plan lacks, one query's after the other's; there is room for
 * them until the next is added to the tree. */
static int find_since(struct batch_job *job)
{
	struct plan *plan = job->plan;
	uint32_t n_tree = plan->tree.n_slices;
	const struct work_slice *at;
	int r = GROW(job->since, job->since_room, job->n_parts);

	for (uint32_t q = 0; q < job->n_parts && r == 0; q++)
		if (n_later(job, q) > 0)
			r = add_since(plan, job->parts[q], n_later(job, q));
	plan->tree.n_slices = n_tree;
	tree_lend(plan);
	at = plan->slices + n_tree;
	for (uint32_t q = 0; q < job->n_parts && r == 0; q++) {
		job->since[q] = (struct backend_io){.slots = at};
		at += n_later(job, q);
	}
	return r;
}

/* By a token of each query that has one since. */
static int advance(const struct sched_core *core, struct batch_job *job)
{
	struct plan *plan = job->plan;
	struct work_list *list = &plan->list;
	struct backend_job advanced = for_backend(job);

	for (uint32_t i = 0; i < list->n_rows; i++) {
		uint32_t q = list->rows[i].query, n = job->since[q].n_slots;

		plan->planned[q].n_tokens += n;
		list->rows[i].pos += n;
		list->kv_tokens_read += n;
		list->kv_tokens_alone += n;
	}
	advanced.io = job->since;
	return core->ops->advance(core->backend, &advanced);
}

/* The plan lacks so many tokens of a query at most. In the end all have come to their last. */
static int catch_up(const struct sched_core *core, struct batch_job *job, uint32_t later)
{
	int r = find_since(job);

	for (; later > 0 && r >= 0; later--) {
		for (uint32_t q = 0; q < job->n_parts; q++)
			job->since[q].n_slots = n_later(job, q) == later;
		r = advance(core, job);
		for (uint32_t q = 0; q < job->n_parts; q++)
			job->since[q].slots += job->since[q].n_slots;
	}
	return r;
}

/* ---- whose plan ----------------------------------------------------------------------------- */

void job_config(const struct sched_core *core, const struct work_shape *shape,
		enum plan_policy policy, struct plan_config *ret)
{
	uint32_t n_threads = core->config->n_threads ? core->config->n_threads : core->n_cores;
	uint32_t n_heads = shape->n_kv_heads; /* an item is run once per KV head */

	plan_config_init(ret, policy, shape, ceil_div(n_threads, n_heads));
	ret->tile_rows = core->ops->tile_rows(core->backend, shape);
}

/* A pass whose attention is cut by time has items of no more than a segment. */
static enum plan_policy policy_of(const struct sched_core *core, const struct step *step)
{
	enum plan_policy policy = core->config->policy.policy;
	bool cut = step->kind == STEP_TOKENS && core->ops->program->holds;

	return cut && policy != PLAN_NONE ? PLAN_AUTO : policy;
}

static void job_begin(const struct sched_core *core, struct batch_job *job, const struct step *step)
{
	if (job->model != step->model) {
		job_config(core, &step->model->shape, policy_of(core, step), &job->config);
		job->config.deft = core->config->policy.deft;
	}
	job->model = step->model;
	job->layer = step->layer;
}

int job_add(const struct sched_core *core, struct batch_job *job, struct sched_lane *lane)
{
	if (GROW(job->lanes, job->lanes_room, job->n_lanes + 1) < 0)
		return -ENOMEM;
	if (job->n_lanes == 0)
		job_begin(core, job, &lane->step);
	job->lanes[job->n_lanes++] = lane;
	return 0;
}

/* Where the part's rows lie, of all that are live: slots is set once all parts are there. */
static int cut_slots(struct batch_job *job, const struct step_part *part,
		     const struct store_slice *slots, struct backend_io *io)
{
	uint32_t first = part->first_row, count = part->n_new, n = job->n_cut;

	for (; count > 0; slots++) {
		struct store_slice cut = slice_cut(slots, &first, &count);

		if (cut.count == 0)
			continue;
		if (GROW(job->cut, job->cut_room, n + 1) < 0)
			return -ENOMEM;
		job->cut[n++] = (struct work_slice){cut.page, cut.first, cut.count};
	}
	io->slots = NULL;
	io->n_slots = n - job->n_cut;
	job->n_cut = n;
	return 0;
}

static void set_cut_slots(struct batch_job *job)
{
	const struct work_slice *at = job->cut;

	for (uint32_t i = 0; i < job->n_parts && job->n_cut; i++) {
		if (job->io[i].slots)
			continue;
		job->io[i].slots = at;
		at += job->io[i].n_slots;
	}
}

static int add_part(struct batch_job *job, const struct step_part *part)
{
	const struct sched_seq *seq = part->seq;
	struct store_seq_view view = store_seq_view(seq->store);
	bool may_be_later = part->n_new == 1 && !seq->parents && !part_only_appends(part);
	uint32_t i = job->n_parts;

	if (GROW(job->parts, job->parts_room, i + 1) < 0 ||
	    GROW(job->queries, job->queries_room, i + 1) < 0 ||
	    GROW(job->io, job->io_room, i + 1) < 0)
		return -ENOMEM;
	job->parts[i] = part;
	job->queries[i] = (struct plan_query){
		.handle = seq->handle,
		.path_version = view.path_version,
		.n_tokens = view.n_tokens + part->first_row,
		.n_new = part->n_new,
		.n_last = may_be_later ? view.n_last + 1 : 0,
		.only_appends = part_only_appends(part),
	};
	job->io[i] = part->io;
	job->io[i].slots = (const struct work_slice *)view.slots;
	job->io[i].n_slots = view.n_slots;
	job->n_parts++;
	return part->n_new < view.n_live ? cut_slots(job, part, view.slots, &job->io[i]) : 0;
}

static int collect_parts(struct batch_job *job)
{
	job->n_parts = job->n_walked = job->n_absent = job->n_cut = 0;
	for (uint32_t i = 0; i < job->n_lanes; i++) {
		const struct step *step = &job->lanes[i]->step;

		for (uint32_t j = 0; j < step->n_parts; j++)
			if (step->parts[j].n_new && add_part(job, &step->parts[j]) < 0)
				return -ENOMEM;
	}
	set_cut_slots(job);
	return 0;
}

/* The plan is to serve steps so many tokens later, at most, than it does now. False: it cannot, and
 * is of no more use. */
static bool is_served_by(const struct sched_core *core, struct batch_job *job, struct plan *plan,
			 uint32_t later)
{
	int r = 0;

	job->plan = plan;
	if (later > 0) {
		r = core->ops->advance ? catch_up(core, job, later) : -ESTALE;
		plan->advanced = true;
		plan->ends_soon = r == BACKEND_SOON;
	}
	if (r >= 0)
		return true;
	plan_drop(plan);
	job->plan = NULL;
	return false;
}

/* One that is kept for these and others: their rows are in the job then. */
static int find_wide_plan(struct plans *p, struct batch_job *job)
{
	int r = 0;

	for (uint32_t i = 0; i < p->cache.n_plans && r == 0 && !job->plan; i++) {
		struct plan *plan = p->cache.plans[i];

		if (plan->taken || !job_widen(p, job, plan))
			continue;
		const struct plan_key key = {job->model, job->queries, job->n_parts};
		uint32_t later = plan_fit(plan, &key, PLAN_LATER); /* it does, now */

		if (!is_served_by(p->core, job, plan_cache_take(&p->cache, plan), later))
			r = collect_parts(job);
	}
	return r;
}

/* Do the new tokens lie where the plan that was made ahead has them, none of them a draft's? Those
 * that it takes in may lie anywhere. */
static bool is_as_foreseen(const struct plan *plan, const struct batch_job *job)
{
	for (uint32_t q = 0; q < plan->n_planned && plan->foreseen; q++) {
		const struct work_node *node = &plan->nodes[plan->queries[q].node];
		const struct backend_io *io = &job->io[q];

		if (job->parts[q]->seq->draft || node->n_slices != io->n_slots ||
		    memcmp(plan->slices + node->slice, io->slots,
			   io->n_slots * sizeof(*io->slots)) != 0)
			return false;
	}
	return true;
}

/* NULL: there is none for the job. */
static struct plan *find_plan_ahead(struct plans *p, const struct batch_job *job,
				    const struct plan_key *key, uint32_t *ret_later)
{
	if (!plan_ahead_is_made(&p->ahead) || p->ahead.plan->n_planned != job->n_parts ||
	    !is_as_foreseen(p->ahead.plan, job))
		return NULL;
	return plan_ahead_take(&p->ahead, key, ret_later);
}

/* One that was made ahead, or is kept, if there is any; else job->plan stays NULL. */
static int find_plan(struct plans *p, struct batch_job *job)
{
	struct plan *plan = NULL;
	uint32_t later;
	int r = collect_parts(job);
	const struct plan_key key = {job->model, job->queries, job->n_parts};

	job->plan = NULL;
	if (r == 0)
		plan = find_plan_ahead(p, job, &key, &later);
	if (plan && is_served_by(p->core, job, plan, later)) {
		plan->replaces = plan_cache_drop(&p->cache, &key); /* the one that it follows */
		return 0;
	}
	plan = r == 0 ? plan_cache_get(&p->cache, &key, &later) : NULL;
	if (plan)
		is_served_by(p->core, job, plan, later);
	if (r == 0 && !job->plan && job->spare_ns > 0)
		r = find_wide_plan(p, job);
	return r;
}

static int make_plan(struct plans *p, struct batch_job *job)
{
	struct plan *plan = plan_cache_take_oldest(&p->cache);
	int r = tree_make(p, plan, job);

	job->n_walked = p->n_path;
	if (r == 0)
		r = plan_make(&plan->config, &plan->tree, &plan->list);
	if (r < 0) {
		plan_drop(plan);
		return r;
	}
	job->plan = plan;
	if (plan->tree.n_nodes == 0) { /* who only appends needs none that is kept */
		plan->n_planned = 0;
		plan->used = plan->id = 0;
	}
	return 0;
}

/* Who has a plan keeps it: others' are made in the place of what none of them has. */
int jobs_plan(struct plans *p, struct batch_job *jobs, uint32_t n_jobs,
	      struct backend_job *ret_jobs)
{
	int r = plan_cache_begin(&p->cache, n_jobs);

	for (uint32_t i = 0; i < n_jobs && r == 0; i++)
		r = find_plan(p, &jobs[i]);
	for (uint32_t i = 0; i < n_jobs && r == 0; i++)
		r = jobs[i].plan ? 0 : make_plan(p, &jobs[i]);
	for (uint32_t i = 0; i < n_jobs && r == 0; i++)
		ret_jobs[i] = for_backend(&jobs[i]);
	return r;
}

/* Where the slice's tokens go: behind the tree's slices, which are not to be moved any more. */
static int find_slots(struct batch_job *job, const struct slice *slice)
{
	struct plan *plan = job->plan;
	uint32_t n_tree = plan->tree.n_slices, first = n_tree;
	int r = 0;

	for (uint32_t i = 0; i < slice->n && r == 0; i++) {
		const struct part_rows *rows = &slice->rows[i];

		r = tree_add_tokens(plan, store_seq_view(rows->part->seq->store).slots, rows->row,
				    rows->n_rows);
		job->io[i] = io_from_row(rows->part->io, rows->row);
		job->io[i].n_slots = plan->tree.n_slices - first;
		first = plan->tree.n_slices;
	}
	plan->tree.n_slices = n_tree;
	for (uint32_t i = 0; i < slice->n; n_tree += job->io[i++].n_slots)
		job->io[i].slots = plan->slices + n_tree;
	return r;
}

static int make_slice(struct plans *p, struct batch_job *job, const struct slice *slice)
{
	struct plan *plan = plan_cache_take_oldest(&p->cache);
	int r = tree_make_slice(p, plan, job, slice);

	plan->used = 0;
	job->plan = plan;
	if (r == 0)
		r = GROW(job->io, job->io_room, slice->n);
	if (r == 0)
		r = find_slots(job, slice);
	tree_lend(plan);
	return r < 0 ? r : plan_make(&plan->config, &plan->tree, &plan->list);
}

int job_plan_slice(struct plans *p, struct batch_job *job, const struct slice *slice,
		   struct backend_job *ret_job)
{
	int r = plan_cache_begin(&p->cache, 1);

	if (r == 0)
		r = make_slice(p, job, slice);
	if (r == 0)
		*ret_job = for_backend(job);
	return r;
}

void job_plan_ahead(struct plans *p, struct batch_job *job)
{
	job->plan->ends_soon = false; /* once a token at most, should it fail */
	struct plan *next = plan_ahead_next(&p->ahead, job->plan);

	if (next && tree_make(p, next, job) == 0)
		plan_ahead_start(&p->ahead);
}

void job_foresee(struct plans *p, struct batch_job *job)
{
	struct plan *next = plan_ahead_next(&p->ahead, job->plan);

	if (next && tree_make_of_last(p, next, job) == 0)
		plan_ahead_start(&p->ahead);
}

void job_foresee_next(struct plans *p, const struct batch_job *job, const struct next_job *next)
{
	struct plan *plan = plan_ahead_next(&p->ahead, job->plan);

	if (plan && tree_make_next(p, plan, job, next) == 0)
		plan_ahead_start(&p->ahead);
}

bool job_see_chosen(const struct sched_core *core, struct backend_job *job,
		    const struct backend_chosen *chosen)
{
	struct backend_job seeing = *job;

	seeing.chosen = chosen;
	if (!core->ops->takes_chosen || !core->ops->takes_chosen(core->backend, &seeing))
		return false;
	*job = seeing;
	return true;
}

int job_for_heads(const struct backend_job *whole, const struct job_heads *heads,
		  struct backend_job *ret)
{
	int r = select_plan(heads->config, whole->tree, heads->seen, heads->block_tokens,
			    heads->list);

	if (r < 0)
		return r;
	*ret = *whole;
	ret->list = heads->list;
	ret->head = heads->head;
	ret->n_heads = heads->n_heads;
	return 0;
}

void job_done(struct batch_job *job)
{
	free(job->lanes);
	free(job->parts);
	free(job->queries);
	free(job->io);
	free(job->since);
	free(job->cut);
	free(job->absent);
}
