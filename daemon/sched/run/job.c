/*
 * job.c - the tree of a job's paths, and whose plan serves it.
 *
 * A tree has borders only where its own paths part or end, whoever else leaves them where: a run of
 * the store's nodes between two borders is one node, parents first, and behind the paths is a node
 * of live tokens for each query. So what is planned grows with pages and queries, not with what
 * others did to a path. Tree and plan belong together and live in the plan cache; addresses change
 * from layer to layer and are the job's. A plan that served a token earlier takes the new one in:
 * the backend is told where it lies, tree and list are not made anew.
 */
#include "job.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"
#include "daemon/sched/core/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct store_slice) == sizeof(struct work_slice), "one struct, two borders");

/* A node's stamp is the tree's number and the index of the node there that ends with it; numbers
 * last for years, and nodes are born with none. */
#define INDEX_BITS 24
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)
/* Instead of an index: no path parts or ends at the node's end; one does, and the index follows. */
#define NO_BORDER INDEX_MASK
#define SOME_BORDER 0u

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

/* ---- the tree ------------------------------------------------------------------------------- */

static int add_slices(struct plan *plan, const struct store_slice *slices, uint32_t n)
{
	if (GROW(plan->slices, plan->slices_room, plan->tree.n_slices + n) < 0)
		return -ENOMEM;
	memcpy(plan->slices + plan->tree.n_slices, slices, n * sizeof(*slices));
	plan->tree.n_slices += n;
	return 0;
}

/* Tokens [first, first + count) of a run of slices. */
static int add_tokens(struct plan *plan, const struct store_slice *slices, uint32_t first,
		      uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);

		if (cut.count > 0 && add_slices(plan, &cut, 1) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Does the tree being made have the node already? */
static bool is_in_tree(const struct plans *p, struct store_node *node)
{
	return *store_node_scratch(node) >> INDEX_BITS == p->n_trees;
}

static uint32_t index_of(struct store_node *node)
{
	return store_node_parent(node) ? *store_node_scratch(node) & INDEX_MASK : WORK_NONE;
}

static void set_index(const struct plans *p, struct store_node *node, uint32_t index)
{
	*store_node_scratch(node) = p->n_trees << INDEX_BITS | index;
}

/* What the path adds to those before it. Roots are empty: left out. */
static int find_path(struct plans *p, const struct sched_seq *seq)
{
	struct store_node *leaf = store_seq_node(seq->store), *node = leaf;

	for (; store_node_parent(node) && !is_in_tree(p, node); node = store_node_parent(node)) {
		if (GROW(p->path, p->path_room, p->n_path + 1) < 0)
			return -ENOMEM;
		p->path[p->n_path++] = node;
		set_index(p, node, NO_BORDER);
	}
	set_index(p, node, SOME_BORDER);
	set_index(p, leaf, SOME_BORDER);
	if (GROW(p->ends, p->ends_room, p->n_ends + 1) < 0)
		return -ENOMEM;
	p->ends[p->n_ends++] = p->n_path;
	return 0;
}

static int open_node(struct plan *plan, uint32_t parent, uint32_t pos)
{
	uint32_t n = plan->tree.n_nodes;

	if (n == NO_BORDER || GROW(plan->nodes, plan->nodes_room, n + 1) < 0)
		return -ENOMEM;
	plan->nodes[n] =
		(struct work_node){.parent = parent, .pos = pos, .slice = plan->tree.n_slices};
	plan->tree.n_nodes++;
	return 0;
}

/* Behind the last node's. Slices of a page that follow each other are one. */
static int join_slice(struct plan *plan, const struct store_slice *slice)
{
	struct work_node *node = &plan->nodes[plan->tree.n_nodes - 1];
	struct work_slice *last = node->n_slices ? &plan->slices[plan->tree.n_slices - 1] : NULL;

	node->n_tokens += slice->count;
	if (last && last->page == slice->page && last->first + last->count == slice->first) {
		last->count += slice->count;
		return 0;
	}
	node->n_slices++;
	return add_slices(plan, slice, 1);
}

/* The first of its slices may go on in the last one's page; none of the others does. */
static int join_node(struct plan *plan, const struct store_node *node)
{
	uint32_t n;
	const struct store_slice *slices = store_node_slices(node, &n);
	int r = join_slice(plan, &slices[0]);

	if (r == 0 && n > 1)
		r = add_slices(plan, slices + 1, n - 1);
	if (r < 0)
		return r;
	struct work_node *to = &plan->nodes[plan->tree.n_nodes - 1];

	to->n_tokens += store_node_n_tokens(node) - slices[0].count;
	to->n_slices += n - 1;
	return 0;
}

/* Of the next query, from the root down. Behind a border begins a node. */
static int add_path(const struct plans *p, struct plan *plan)
{
	uint32_t q = plan->tree.n_queries, end = q ? p->ends[q - 1] : 0;
	bool begins = true;

	for (uint32_t i = p->ends[q]; i-- > end;) {
		struct store_node *node = p->path[i];

		if (begins &&
		    open_node(plan, index_of(store_node_parent(node)), store_node_pos(node)) < 0)
			return -ENOMEM;
		if (join_node(plan, node) < 0)
			return -ENOMEM;
		begins = index_of(node) != NO_BORDER;
		if (begins)
			set_index(p, node, plan->tree.n_nodes - 1);
	}
	return 0;
}

/* Rows of a part, at the end of the sequence's path. */
static int add_query(const struct plans *p, struct plan *plan, const struct part_rows *rows)
{
	const struct sched_seq *seq = rows->part->seq;
	struct store_seq_view view = store_seq_view(seq->store);
	uint32_t q = plan->tree.n_queries;

	if (GROW(plan->queries, plan->queries_room, q + 1) < 0 || add_path(p, plan) < 0 ||
	    open_node(plan, index_of(store_seq_node(seq->store)), view.n_tokens) < 0 ||
	    add_tokens(plan, view.slots, 0, rows->row + rows->n_rows) < 0)
		return -ENOMEM;
	struct work_node *node = &plan->nodes[plan->tree.n_nodes - 1];

	node->n_tokens = rows->row + rows->n_rows;
	node->n_slices = plan->tree.n_slices - node->slice;
	plan->queries[q] = (struct work_query){.node = plan->tree.n_nodes - 1,
					       .pos = view.n_tokens + rows->row,
					       .n_rows = rows->n_rows,
					       .parents = seq->parents,
					       .n_before = seq->parents ? rows->row : 0};
	plan->tree.n_queries++;
	return 0;
}

static void begin_tree(struct plans *p, struct plan *plan, const struct batch_job *job)
{
	p->n_trees++;
	p->n_path = p->n_ends = 0;
	plan->model = job->model;
	plan->config = job->config;
	plan->tree = (struct work_tree){0};
	plan->id = 0;
	plan->n_planned = 0;
	plan->advanced = plan->ends_soon = false;
}

/* Its arrays may have moved. */
static void lend_tree(struct plan *plan)
{
	plan->tree.nodes = plan->nodes;
	plan->tree.slices = plan->slices;
	plan->tree.queries = plan->queries;
}

/* Of all steps of the job, and a number for the plan to come. */
static int make_tree(struct plans *p, struct plan *plan, const struct batch_job *job)
{
	begin_tree(p, plan, job);
	if (GROW(plan->planned, plan->planned_room, job->n_parts) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->n_parts; i++)
		if (find_path(p, job->parts[i]->seq) < 0)
			return -ENOMEM;
	for (uint32_t i = 0; i < job->n_parts; i++) {
		const struct part_rows all = {job->parts[i], 0, job->parts[i]->n_new};

		if (add_query(p, plan, &all) < 0)
			return -ENOMEM;
		plan->planned[i] = job->queries[i];
	}
	lend_tree(plan);
	plan->id = ++p->cache.last_id;
	plan->n_planned = job->n_parts;
	return 0;
}

static struct backend_job for_backend(const struct batch_job *job)
{
	const struct plan *plan = job->plan;

	return (struct backend_job){.shape = &job->model->shape,
				    .tree = &plan->tree,
				    .list = &plan->list,
				    .io = job->io,
				    .plan_id = plan->id,
				    .advanced = plan->advanced,
				    .layer = job->layer};
}

/* ---- tokens that came since the plan was made ----------------------------------------------- */

/* One by one: of a run of slices tokens [first, first + count). */
static int add_each_token(struct plan *plan, const struct store_slice *slices, uint32_t first,
			  uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);
		struct store_slice token = {cut.page, cut.first, 1};

		for (; token.first < cut.first + cut.count; token.first++) {
			if (add_slices(plan, &token, 1) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* Where the last n tokens of each sequence are, of which its new one is the last, behind the tree's
 * slices: there is room for them until the next is added to it. */
static int find_since(struct batch_job *job, uint32_t n)
{
	struct plan *plan = job->plan;
	uint32_t n_slices, n_tree = plan->tree.n_slices;
	int r = 0;

	for (uint32_t i = 0; i < job->n_parts && r == 0; i++) {
		const struct store_seq *store = job->parts[i]->seq->store;
		const struct store_node *node = store_seq_node(store);
		uint32_t n_before = store_node_n_tokens(node) - (n - 1);

		r = add_each_token(plan, store_node_slices(node, &n_slices), n_before, n - 1);
		if (r == 0)
			r = add_each_token(plan, store_seq_slots(store, &n_slices), 0, 1);
	}
	plan->tree.n_slices = n_tree;
	lend_tree(plan);
	return r;
}

/* By one token, whose slot io has. */
static int advance_by_one(const struct sched_core *core, struct batch_job *job,
			  const struct backend_io *io)
{
	struct plan *plan = job->plan;
	struct work_list *list = &plan->list;

	for (uint32_t i = 0; i < list->n_rows; i++)
		list->rows[i].pos = ++plan->planned[list->rows[i].query].n_tokens;
	list->kv_tokens_read += list->n_rows;
	list->kv_tokens_alone += list->n_rows;
	struct backend_job advanced = for_backend(job);

	advanced.io = io;
	return core->ops->advance(core->backend, &advanced);
}

/* By several, of which the job's io has the last. */
static int catch_up(const struct sched_core *core, struct batch_job *job, uint32_t later)
{
	struct plan *plan = job->plan;
	uint32_t n = job->n_parts;
	int r = GROW(job->since, job->since_room, n);

	if (r == 0)
		r = find_since(job, later);
	for (uint32_t t = 0; t < later && r >= 0; t++) {
		for (uint32_t q = 0; q < n; q++)
			job->since[q] =
				(struct backend_io){.slots = plan->slices + plan->tree.n_slices +
							     q * later + t,
						    .n_slots = 1};
		r = advance_by_one(core, job, job->since);
	}
	return r;
}

struct path_added paths_add(uint64_t paths, const struct sched_seq *seq)
{
	struct store_node *node = store_seq_node(seq->store);
	struct path_added added = {0};

	for (; store_node_parent(node) && *store_node_scratch(node) >> INDEX_BITS != paths;
	     node = store_node_parent(node)) {
		added.n_tokens += store_node_n_tokens(node);
		added.n_nodes++;
		*store_node_scratch(node) = paths << INDEX_BITS;
	}
	return added;
}

/* Who sees nothing of the path has no tokens read, but its nodes are planned. */
double part_path_ns(uint64_t paths, const struct sched_model *model, const struct step_part *part)
{
	struct path_added added;

	if (!part->n_seen)
		return NODE_NS * store_seq_most_nodes(part->seq->store);
	added = paths_add(paths, part->seq);
	return path_ns(model, added.n_tokens + part->n_new, added.n_nodes);
}

/* ---- whose plan ----------------------------------------------------------------------------- */

void job_config(const struct sched_core *core, const struct work_shape *shape,
		enum plan_policy policy, struct plan_config *ret)
{
	uint32_t n_threads = core->config->n_threads ? core->config->n_threads : core->n_cores;
	uint32_t n_heads = shape->n_kv_heads; /* an item is run once per KV head */

	plan_config_init(ret, policy, shape, (n_threads + n_heads - 1) / n_heads);
	ret->tile_rows = core->ops->tile_rows(core->backend, shape);
}

static void job_begin(const struct sched_core *core, struct batch_job *job, const struct step *step)
{
	if (job->model != step->model) {
		job_config(core, &step->model->shape, core->config->policy.policy, &job->config);
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

static int add_part(struct batch_job *job, const struct step_part *part)
{
	const struct sched_seq *seq = part->seq;
	struct store_seq_view view = store_seq_view(seq->store);
	uint32_t i = job->n_parts;

	if (GROW(job->parts, job->parts_room, i + 1) < 0 ||
	    GROW(job->queries, job->queries_room, i + 1) < 0 ||
	    GROW(job->io, job->io_room, i + 1) < 0)
		return -ENOMEM;
	job->parts[i] = part;
	job->queries[i] = (struct plan_query){
		.handle = seq->handle,
		.path_version = view.path_version,
		.n_tokens = view.n_tokens,
		.n_new = part->n_new,
		.n_last = part->n_new == 1 && !seq->parents ? view.n_last + 1 : 0,
	};
	job->io[i] = part->io;
	job->io[i].slots = (const struct work_slice *)view.slots;
	job->io[i].n_slots = view.n_slots;
	job->n_parts++;
	return 0;
}

static int collect_parts(struct batch_job *job)
{
	job->n_parts = job->n_walked = 0;
	for (uint32_t i = 0; i < job->n_lanes; i++) {
		const struct step *step = &job->lanes[i]->step;

		for (uint32_t j = 0; j < step->n_parts; j++)
			if (step->parts[j].n_new && add_part(job, &step->parts[j]) < 0)
				return -ENOMEM;
	}
	return 0;
}

/* The plan is to serve steps so many tokens later than it does now. False: it cannot, and is of no
 * more use. */
static bool is_served_by(const struct sched_core *core, struct batch_job *job, struct plan *plan,
			 uint32_t later)
{
	int r = 0;

	job->plan = plan;
	if (later > 0) {
		r = -ESTALE;
		if (core->ops->advance)
			r = later == 1 ? advance_by_one(core, job, job->io)
				       : catch_up(core, job, later);
		plan->advanced = true;
		plan->ends_soon = r == BACKEND_SOON;
	}
	if (r >= 0)
		return true;
	plan_drop(plan);
	job->plan = NULL;
	return false;
}

/* One that was made ahead, or is kept, if there is any; else job->plan stays NULL. */
static int find_plan(struct plans *p, struct batch_job *job)
{
	struct plan *plan = NULL;
	uint32_t later;
	int r = collect_parts(job);
	const struct plan_key key = {job->model, job->queries, job->n_parts};

	job->plan = NULL;
	if (r == 0 && plan_ahead_is_made(&p->ahead))
		plan = plan_ahead_take(&p->ahead, &key, &later);
	if (plan && is_served_by(p->core, job, plan, later)) {
		plan_cache_drop(&p->cache, &key); /* the one that it follows */
		return 0;
	}
	plan = r == 0 ? plan_cache_get(&p->cache, &key, &later) : NULL;
	if (plan)
		is_served_by(p->core, job, plan, later);
	return r;
}

static int make_plan(struct plans *p, struct batch_job *job)
{
	struct plan *plan = plan_cache_take_oldest(&p->cache);
	int r = make_tree(p, plan, job);

	job->n_walked = p->n_path;
	if (r == 0)
		r = plan_make(&plan->config, &plan->tree, &plan->list);
	if (r < 0)
		plan_drop(plan);
	else
		job->plan = plan;
	return r;
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

		r = add_tokens(plan, store_seq_view(rows->part->seq->store).slots, rows->row,
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
	int r = GROW(job->io, job->io_room, slice->n);

	plan->used = 0;
	job->plan = plan;
	begin_tree(p, plan, job);
	for (uint32_t i = 0; i < slice->n && r == 0; i++)
		r = find_path(p, slice->rows[i].part->seq);
	for (uint32_t i = 0; i < slice->n && r == 0; i++)
		r = add_query(p, plan, &slice->rows[i]);
	if (r == 0)
		r = find_slots(job, slice);
	lend_tree(plan);
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

	if (next && make_tree(p, next, job) == 0)
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
}
