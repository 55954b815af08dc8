/* job.c - see job.h. */
#include "job.h"

#include "daemon/base/grow.h"
#include "daemon/sched/core/slice.h"
#include "daemon/sched/sched_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct store_slice) == sizeof(struct work_slice), "one struct, two borders");

/* ---- the tree of a job ---------------------------------------------------------------------- */

static int job_add_slices(struct batch_job *job, const struct store_slice *slices, uint32_t n)
{
	if (GROW(job->slices, job->slices_room, job->tree.n_slices + n) < 0)
		return -ENOMEM;
	memcpy(job->slices + job->tree.n_slices, slices, n * sizeof(*slices));
	job->tree.n_slices += n;
	return 0;
}

/* Tokens [first, first + count) of a run of slices. */
static int job_add_slices_cut(struct batch_job *job, const struct store_slice *slices,
			      uint32_t first, uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);

		if (cut.count > 0 && job_add_slices(job, &cut, 1) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* A mark is the tree's number and the node's index in it; numbers last for years, and nodes are
 * born with none. */
#define INDEX_BITS 24
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)

/* A node's mark tells whether this tree has it already, and where. */
static bool is_marked(const struct batch *b, struct store_node *node)
{
	return *store_node_scratch(node) >> INDEX_BITS == b->mark;
}

static int job_add_node(struct batch *b, struct batch_job *job, struct store_node *node,
			uint32_t index, uint32_t parent)
{
	uint32_t n_slices;
	const struct store_slice *slices = store_node_slices(node, &n_slices);

	job->nodes[index] = (struct work_node){.parent = parent,
					       .pos = store_node_pos(node),
					       .n_tokens = store_node_n_tokens(node),
					       .slice = job->tree.n_slices,
					       .n_slices = n_slices};
	*store_node_scratch(node) = b->mark << INDEX_BITS | index;
	return job_add_slices(job, slices, n_slices);
}

/* Nodes from the root down to here that the tree does not have yet, parents first. Roots are empty:
 * left out. */
static int job_add_path(struct batch *b, struct batch_job *job, struct store_node *leaf,
			uint32_t *ret_index)
{
	uint32_t depth = 0;
	struct store_node *top = leaf;

	while (store_node_parent(top) && !is_marked(b, top)) {
		top = store_node_parent(top);
		depth++;
	}
	uint32_t first = job->tree.n_nodes;
	uint32_t above = store_node_parent(top) ? *store_node_scratch(top) & INDEX_MASK : WORK_NONE;

	if (first + depth > INDEX_MASK || GROW(job->nodes, job->nodes_room, first + depth + 1) < 0)
		return -ENOMEM;
	job->tree.n_nodes += depth;
	struct store_node *node = leaf;

	for (uint32_t i = depth; i-- > 0; node = store_node_parent(node)) {
		if (job_add_node(b, job, node, first + i, i ? first + i - 1 : above) < 0)
			return -ENOMEM;
	}
	*ret_index = depth ? first + depth - 1 : above;
	return 0;
}

static struct batch_planned planned_of(const struct step_part *part)
{
	const struct store_seq *store = part->seq->store;

	return (struct batch_planned){.handle = part->seq->handle,
				      .path_version = store_seq_path_version(store),
				      .n_tokens = store_seq_n_tokens(store),
				      .n_new = part->n_new};
}

/* Rows [row, row + n_rows) of a part, at the end of the sequence's path. */
static int job_add_query(struct batch *b, struct batch_job *job, const struct step_part *part,
			 uint32_t row, uint32_t n_rows)
{
	uint32_t base = store_seq_n_tokens(part->seq->store);
	uint32_t n_slots, parent = WORK_NONE;
	const struct store_slice *slots = store_seq_slots(part->seq->store, &n_slots);
	uint32_t q = job->tree.n_queries;

	if (GROW(job->queries, job->queries_room, q + 1) < 0 ||
	    GROW(job->io, job->io_room, q + 1) < 0 ||
	    GROW(job->planned, job->planned_room, q + 1) < 0 ||
	    job_add_path(b, job, store_seq_node(part->seq->store), &parent) < 0)
		return -ENOMEM;
	uint32_t node = job->tree.n_nodes++;
	uint32_t slice = job->tree.n_slices;

	if (job_add_slices_cut(job, slots, 0, row + n_rows) < 0)
		return -ENOMEM;
	job->nodes[node] = (struct work_node){.parent = parent,
					      .pos = base,
					      .n_tokens = row + n_rows,
					      .slice = slice,
					      .n_slices = job->tree.n_slices - slice};
	job->queries[q] = (struct work_query){.node = node,
					      .pos = base + row,
					      .n_rows = n_rows,
					      .parents = part->seq->parents};
	job->planned[q] = planned_of(part);
	job->tree.n_queries++;
	return 0;
}

static void job_begin_tree(struct batch *b, struct batch_job *job)
{
	b->mark++;
	job->tree = (struct work_tree){0};
	job->n_planned = 0;
	job->advanced = job->ends_soon = false;
}

/* Its arrays may have moved. */
static void job_lend_tree(struct batch_job *job)
{
	job->tree.nodes = job->nodes;
	job->tree.slices = job->slices;
	job->tree.queries = job->queries;
}

/* ---- plans that are kept -------------------------------------------------------------------- */

/* How many tokens later than a job's plan, made for an earlier layer or token, these lanes' steps
 * are, if it fits them. */
#define FIT_NOT UINT32_MAX
#define LATER_KEPT 1u /* at most, of a plan that served their last token */
#define LATER_AHEAD 16u /* of one that was made ahead */

/* Are the path's last n tokens in its last node? */
static bool node_has_last(const struct store_seq *store, uint32_t n)
{
	const struct store_node *node = store_seq_node(store);
	uint32_t n_tokens = store_node_n_tokens(node);

	return n == 0 ||
	       (n_tokens >= n && store_node_pos(node) + n_tokens == store_seq_n_tokens(store));
}

static uint32_t part_fit(const struct batch_planned *planned, const struct step_part *part,
			 uint32_t most)
{
	struct batch_planned now = planned_of(part);
	uint32_t later = now.n_tokens - planned->n_tokens;

	if (now.handle != planned->handle || now.path_version != planned->path_version ||
	    now.n_new != planned->n_new)
		return FIT_NOT;
	if (later == 0)
		return 0;
	if (later > most || now.n_new != 1 || part->seq->parents ||
	    !node_has_last(part->seq->store, later - 1))
		return FIT_NOT;
	return later;
}

bool job_may_serve(const struct sched *s, const struct batch_job *job)
{
	for (uint32_t i = 0; i < job->n_planned; i++) {
		const struct batch_planned *planned = &job->planned[i];
		const struct sched_seq *seq = handle_seq(&s->seqs, planned->handle);

		if (!seq || store_seq_path_version(seq->store) != planned->path_version ||
		    store_seq_n_tokens(seq->store) - planned->n_tokens > LATER_AHEAD)
			return false;
	}
	return true;
}

/* The next step part of the job in order of lanes, from *lane and *part on, which then stand behind
 * it; NULL: there is none. */
static const struct step_part *next_part(const struct batch *b, const struct batch_job *job,
					 uint32_t *lane, uint32_t *part)
{
	for (; *lane < b->n_lanes; (*lane)++, *part = 0) {
		const struct step *step = &b->lanes[*lane]->step;

		if (step->model == job->model && step->layer == job->layer && *part < step->n_parts)
			return &step->parts[(*part)++];
	}
	return NULL;
}

static uint32_t job_fit(const struct sched *s, const struct batch_job *job, uint32_t most)
{
	const struct step_part *part;
	uint32_t q = 0, lane = 0, at = 0, fit = FIT_NOT;

	while ((part = next_part(&s->batch, job, &lane, &at)) != NULL) {
		uint32_t this =
			q < job->n_planned ? part_fit(&job->planned[q], part, most) : FIT_NOT;

		if (this == FIT_NOT || (q > 0 && this != fit))
			return FIT_NOT;
		fit = this;
		q++;
	}
	return q == job->n_planned ? fit : FIT_NOT;
}

/* What is kept changes places; the job stays the batch's. */
static void job_swap(struct sched *s, struct batch_job *job, struct batch_job *kept)
{
	struct batch_job was = *job;

	*job = *kept;
	*kept = was;
	job_init(s, job, was.model, was.layer);
	job->n_lanes = was.n_lanes;
}

/* The plan is of no more use. */
static void job_forget_plan(struct batch_job *job)
{
	job->n_planned = 0;
	job->used = 0;
}

/* What was used longest ago of what is kept, so that a plan that is made takes the place of none in
 * use. */
static void job_take_oldest(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	struct batch_job *oldest = job;

	for (uint32_t i = b->n_jobs; i < b->jobs_room; i++) {
		if (b->jobs[i].used < oldest->used)
			oldest = &b->jobs[i];
	}
	if (oldest != job)
		job_swap(s, job, oldest);
}

/* Lanes that take turns have a plan each, among the jobs beyond those of the batch. */
static uint32_t job_find_kept(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	uint32_t later = job_fit(s, job, LATER_KEPT);

	for (uint32_t i = b->n_jobs; i < b->jobs_room && later == FIT_NOT; i++) {
		struct batch_job *kept = &b->jobs[i];

		if (kept->model != job->model)
			continue;
		kept->layer = job->layer;
		later = job_fit(s, kept, LATER_KEPT);
		if (later != FIT_NOT)
			job_swap(s, job, kept);
	}
	return later;
}

/* One that was made ahead comes in the place of what was used longest ago; the one that it is to
 * follow is kept, should it not serve. */
static uint32_t job_find_made(struct sched *s, struct batch_job *job)
{
	struct batch_job *made = renewal_made(&s->batch.renewal);
	uint32_t later = FIT_NOT;

	if (made && made->model == job->model) {
		made->layer = job->layer;
		later = job_fit(s, made, LATER_AHEAD);
	}
	if (later == FIT_NOT)
		return FIT_NOT;
	job_take_oldest(s, job);
	job_swap(s, job, made);
	renewal_taken(&s->batch.renewal);
	return later;
}

int job_make_tree(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	const struct step_part *part;
	uint32_t lane = 0, at = 0;

	job_begin_tree(b, job);
	while ((part = next_part(b, job, &lane, &at)) != NULL) {
		if (job_add_query(b, job, part, 0, part->n_new) < 0)
			return -ENOMEM;
	}
	job_lend_tree(job);
	job->plan_id = ++s->batch.last_plan;
	job->n_planned = job->tree.n_queries;
	return 0;
}

static int job_make_plan(struct sched *s, struct batch_job *job)
{
	int r = job_make_tree(s, job);

	if (r == 0)
		r = plan_make(&job->plan, &job->tree, &job->list);
	if (r < 0)
		job->n_planned = 0;
	return r;
}

/* Addresses change from layer to layer, the tree does not. */
static void job_fill_io(struct sched *s, struct batch_job *job)
{
	const struct step_part *part;
	uint32_t lane = 0, at = 0;

	for (struct backend_io *io = job->io;
	     (part = next_part(&s->batch, job, &lane, &at)) != NULL; io++) {
		*io = part->io;
		io->slots =
			(const struct work_slice *)store_seq_slots(part->seq->store, &io->n_slots);
	}
}

struct backend_job job_for_backend(const struct sched *s, const struct batch_job *job)
{
	return (struct backend_job){.shape = &job->model->shape,
				    .tree = &job->tree,
				    .list = &job->list,
				    .io = job->io,
				    .plan_id = s->batch.prefill ? 0 : job->plan_id,
				    .advanced = job->advanced,
				    .layer = job->layer};
}

/* One by one: of a run of slices tokens [first, first + count). */
static int job_add_tokens(struct batch_job *job, const struct store_slice *slices, uint32_t first,
			  uint32_t count)
{
	for (; count > 0; slices++) {
		struct store_slice cut = slice_cut(slices, &first, &count);
		struct store_slice token = {cut.page, cut.first, 1};

		for (; token.first < cut.first + cut.count; token.first++) {
			if (job_add_slices(job, &token, 1) < 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* Where the last n tokens of each sequence are, of which its new one is the last, behind the tree's
 * slices: there is room for them until the next is added to it. */
static int job_find_since(struct sched *s, struct batch_job *job, uint32_t n)
{
	const struct step_part *part;
	uint32_t lane = 0, at = 0, n_slices, n_tree = job->tree.n_slices;
	int r = 0;

	while (r == 0 && (part = next_part(&s->batch, job, &lane, &at)) != NULL) {
		const struct store_node *node = store_seq_node(part->seq->store);
		uint32_t n_before = store_node_n_tokens(node) - (n - 1);

		r = job_add_tokens(job, store_node_slices(node, &n_slices), n_before, n - 1);
		if (r == 0)
			r = job_add_tokens(job, store_seq_slots(part->seq->store, &n_slices), 0, 1);
	}
	job->tree.n_slices = n_tree;
	job_lend_tree(job);
	return r;
}

/* By one token, whose slot io has. */
static int job_advance_by_one(struct sched *s, struct batch_job *job, const struct backend_io *io)
{
	struct work_list *list = &job->list;

	for (uint32_t i = 0; i < list->n_rows; i++)
		list->rows[i].pos = ++job->planned[list->rows[i].query].n_tokens;
	list->kv_tokens_read += list->n_rows;
	list->kv_tokens_alone += list->n_rows;
	struct backend_job advanced = job_for_backend(s, job);

	advanced.io = io;
	return s->ops->advance(s->backend, &advanced);
}

/* By several, of which io has the last. */
static int job_catch_up(struct sched *s, struct batch_job *job, uint32_t later)
{
	uint32_t n = job->tree.n_queries;
	int r = GROW(job->since, job->since_room, n);

	if (r == 0)
		r = job_find_since(s, job, later);
	for (uint32_t t = 0; t < later && r >= 0; t++) {
		for (uint32_t q = 0; q < n; q++)
			job->since[q] =
				(struct backend_io){.slots = job->slices + job->tree.n_slices +
							     q * later + t,
						    .n_slots = 1};
		r = job_advance_by_one(s, job, job->since);
	}
	return r;
}

/* The plan is to serve the steps, so many tokens later than it does now. False: it cannot, and is
 * of no more use. */
static bool job_serves(struct sched *s, struct batch_job *job, uint32_t later)
{
	int r = 0;

	if (later == FIT_NOT)
		return false;
	job_fill_io(s, job);
	if (later > 0) {
		r = -ESTALE;
		if (s->ops->advance)
			r = later == 1 ? job_advance_by_one(s, job, job->io)
				       : job_catch_up(s, job, later);
		job->advanced = true;
		job->ends_soon = r == BACKEND_SOON;
	}
	if (r < 0)
		job_forget_plan(job);
	return r >= 0;
}

/* By a plan made ahead, if there is one: the one that it follows is not asked for again. */
static bool job_serves_by_made(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;

	if (!job_serves(s, job, job_find_made(s, job)))
		return false;
	for (uint32_t i = b->n_jobs; i < b->jobs_room; i++) {
		struct batch_job *kept = &b->jobs[i];

		if (kept->model != job->model)
			continue;
		kept->layer = job->layer;
		if (job_fit(s, kept, LATER_KEPT) != FIT_NOT)
			job_forget_plan(kept);
	}
	return true;
}

void job_init(struct sched *s, struct batch_job *job, struct sched_model *model, uint32_t layer)
{
	if (job->model != model) {
		uint32_t n_threads = s->config->n_threads ? s->config->n_threads : s->n_cores;
		uint32_t n_heads = model->shape.n_kv_heads;
		uint32_t n_units =
			(n_threads + n_heads - 1) / n_heads; /* an item is run once per KV head */

		plan_config_init(&job->plan, s->config->policy.policy, &model->shape, n_units);
		job->plan.deft = s->config->policy.deft;
		job->plan.tile_rows = s->ops->tile_rows(s->backend, &model->shape);
		job->n_planned = 0;
	}
	job->model = model;
	job->layer = layer;
	job->n_lanes = 0;
}

struct batch_job *job_choose(struct batch *b, const struct sched_model *model)
{
	struct batch_job *next = &b->jobs[b->n_jobs], *best = next, was = *next;

	for (uint32_t i = b->n_jobs; i < b->jobs_room && best->model != model; i++) {
		if (b->jobs[i].model == model || b->jobs[i].used < best->used)
			best = &b->jobs[i];
	}
	*next = *best;
	*best = was;
	return next;
}

/* ---- prefill: one slice --------------------------------------------------------------------- */

static int slice_make(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	const struct step_part *part = &b->lanes[0]->step.parts[b->slice_part];
	uint32_t n_slots;
	const struct store_slice *slots = store_seq_slots(part->seq->store, &n_slots);

	job_take_oldest(s, job);
	job->used = 0;
	job_begin_tree(b, job);
	if (job_add_query(b, job, part, b->slice_row, b->slice_rows) < 0)
		return -ENOMEM;
	uint32_t first = job->tree.n_slices;

	if (job_add_slices_cut(job, slots, b->slice_row, b->slice_rows) < 0)
		return -ENOMEM;
	struct backend_io *io = &job->io[0];
	uint64_t row = b->slice_row;

	*io = part->io;
	io->q += io->q ? row * io->q_stride : 0;
	io->k += row * io->k_stride;
	io->v += row * io->v_stride;
	io->o += io->o ? row * io->o_stride : 0;
	io->lse += io->lse ? row * io->lse_stride : 0;
	io->slots = job->slices + first;
	io->n_slots = job->tree.n_slices - first;
	job->tree.n_slices = first;
	job_lend_tree(job);
	return plan_make(&job->plan, &job->tree, &job->list);
}

/* ---- outside -------------------------------------------------------------------------------- */

int job_make(struct sched *s, struct batch_job *job)
{
	if (s->batch.prefill)
		return slice_make(s, job);
	bool served = job_serves_by_made(s, job) || job_serves(s, job, job_find_kept(s, job));

	if (!served)
		job_take_oldest(s, job);
	job->used = ++s->batch.uses;
	if (served)
		return 0;
	int r = job_make_plan(s, job);

	if (r == 0)
		job_fill_io(s, job);
	return r;
}

void job_done(struct batch_job *job)
{
	plan_list_done(&job->list);
	free(job->nodes);
	free(job->slices);
	free(job->queries);
	free(job->io);
	free(job->planned);
	free(job->since);
}
