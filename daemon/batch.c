/* batch.c - see batch.h. */
#include "batch.h"

#include "complete.h"
#include "hold.h"
#include "sched_impl.h"
#include "step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct store_slice) == sizeof(struct work_slice), "one struct, two borders");

#define SLICE_PARTIALS_BYTES (UINT64_C(64) << 20)

/* Room for n elements of a growing array; 0 or -ENOMEM. */
#define RESERVE(array, room, n) array_reserve((void **)&(array), &(room), (n), sizeof(*(array)))

static int array_reserve(void **array, uint32_t *room, uint32_t n, size_t element_bytes)
{
	if (n <= *room)
		return 0;
	uint32_t want = n + n / 2 + 16;
	void *grown = realloc(*array, want * element_bytes);

	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = want;
	return 0;
}

/* ---- the tree of a job -------------------------------------------------------------------------------- */

static int job_add_slices(struct batch_job *job, const struct store_slice *slices, uint32_t n)
{
	if (RESERVE(job->slices, job->slices_room, job->tree.n_slices + n) < 0)
		return -ENOMEM;
	memcpy(job->slices + job->tree.n_slices, slices, n * sizeof(*slices));
	job->tree.n_slices += n;
	return 0;
}

/* Tokens [first, first + count) of a run of slices. */
static int job_add_slices_cut(struct batch_job *job, const struct store_slice *slices,
			      uint32_t first, uint32_t count)
{
	for (; count; slices++) {
		if (first >= slices->count) {
			first -= slices->count;
			continue;
		}
		uint32_t n = slices->count - first < count ? slices->count - first : count;
		struct store_slice cut = {slices->page, (uint16_t)(slices->first + first),
					  (uint16_t)n};

		if (job_add_slices(job, &cut, 1) < 0)
			return -ENOMEM;
		first = 0;
		count -= n;
	}
	return 0;
}

/* A mark is the tree's number and the node's index in it; numbers last for years, and nodes are born with none. */
#define INDEX_BITS 24
#define INDEX_MASK ((UINT32_C(1) << INDEX_BITS) - 1)

/* A node's mark tells whether this tree has it already, and where. */
static bool is_marked(const struct batch *b, struct store_node *node)
{
	return *store_node_mark(node) >> INDEX_BITS == b->mark;
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
	*store_node_mark(node) = b->mark << INDEX_BITS | index;
	return job_add_slices(job, slices, n_slices);
}

/* Nodes from the root down to here that the tree does not have yet, parents first. Roots are empty: left out. */
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
	uint32_t above = store_node_parent(top) ? *store_node_mark(top) & INDEX_MASK : WORK_NONE;

	if (first + depth > INDEX_MASK ||
	    RESERVE(job->nodes, job->nodes_room, first + depth + 1) < 0)
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

	if (RESERVE(job->queries, job->queries_room, q + 1) < 0 ||
	    RESERVE(job->io, job->io_room, q + 1) < 0 ||
	    RESERVE(job->planned, job->planned_room, q + 1) < 0 ||
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
	job->advanced = false;
}

static int job_plan(struct batch_job *job)
{
	job->tree.nodes = job->nodes;
	job->tree.slices = job->slices;
	job->tree.queries = job->queries;
	return plan_make(&job->plan, &job->tree, &job->list);
}

/* ---- jobs of a batch ---------------------------------------------------------------------------------- */

/* How a job's plan, made for an earlier layer or token, fits these lanes' steps. */
enum fit { FIT_NOT, FIT_AS_IT_IS, FIT_A_TOKEN_LATER };

static enum fit part_fit(const struct batch_planned *planned, const struct step_part *part)
{
	struct batch_planned now = planned_of(part);

	if (now.handle != planned->handle || now.path_version != planned->path_version ||
	    now.n_new != planned->n_new)
		return FIT_NOT;
	if (now.n_tokens == planned->n_tokens)
		return FIT_AS_IT_IS;
	if (now.n_tokens == planned->n_tokens + 1 && now.n_new == 1 && !part->seq->parents)
		return FIT_A_TOKEN_LATER;
	return FIT_NOT;
}

/* The next step part of the job in order of lanes, from *ret_lane and *ret_part on; NULL: there is none. */
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

static enum fit job_fit(const struct sched *s, const struct batch_job *job)
{
	const struct step_part *part;
	uint32_t q = 0, lane = 0, at = 0;
	enum fit fit = FIT_NOT;

	while ((part = next_part(&s->batch, job, &lane, &at)) != NULL) {
		enum fit this = q < job->n_planned ? part_fit(&job->planned[q], part) : FIT_NOT;

		if (this == FIT_NOT || (q > 0 && this != fit))
			return FIT_NOT;
		fit = this;
		q++;
	}
	return q == job->n_planned ? fit : FIT_NOT;
}

static int job_make_tree(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	const struct step_part *part;
	uint32_t lane = 0, at = 0;

	job_begin_tree(b, job);
	while ((part = next_part(b, job, &lane, &at)) != NULL) {
		if (job_add_query(b, job, part, 0, part->n_new) < 0)
			return -ENOMEM;
	}
	int r = job_plan(job);

	if (r < 0)
		return r;
	job->plan_id = ++s->batch.last_plan;
	job->n_planned = job->tree.n_queries;
	return 0;
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

static struct backend_job backend_job_of(const struct sched *s, const struct batch_job *job)
{
	return (struct backend_job){.shape = &job->model->shape,
				    .tree = &job->tree,
				    .list = &job->list,
				    .io = job->io,
				    .plan_id = s->batch.prefill ? 0 : job->plan_id,
				    .advanced = job->advanced,
				    .layer = job->layer};
}

/* The plan serves the queries' next tokens too, if the backend can take them into it. */
static enum fit job_advance(struct sched *s, struct batch_job *job)
{
	struct work_list *list = &job->list;

	if (!s->ops->advance)
		return FIT_NOT;
	job_fill_io(s, job);
	for (uint32_t i = 0; i < list->n_rows; i++)
		list->rows[i].pos = ++job->planned[list->rows[i].query].n_tokens;
	list->kv_tokens_read += list->n_rows;
	list->kv_tokens_alone += list->n_rows;
	struct backend_job advanced = backend_job_of(s, job);

	job->advanced = true;
	return s->ops->advance(s->backend, &advanced) == 0 ? FIT_AS_IT_IS : FIT_NOT;
}

static void job_init(struct sched *s, struct batch_job *job, struct sched_model *model,
		     uint32_t layer)
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

/* The batch's job of this model and layer, or a new one. Job i keeps its arrays, and often its plan, from batch to batch. */
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
	struct batch_job *job = &b->jobs[b->n_jobs++];

	job_init(s, job, model, layer);
	return job;
}

int batch_add(struct sched *s, struct sched_lane *lane)
{
	struct batch *b = &s->batch;

	if (RESERVE(b->lanes, b->lanes_room, b->n_lanes + 1) < 0)
		return -ENOMEM;
	struct batch_job *job = batch_job(s, lane->step.model, lane->step.layer);

	if (!job)
		return -ENOMEM;
	job->n_lanes++;
	b->lanes[b->n_lanes++] = lane;
	return 0;
}

/* Rows of a slice: as many as the configuration wants, and fewer where a long context would make their partials many. */
static uint32_t slice_rows(const struct sched *s, const struct batch_job *job,
			   const struct step_part *part)
{
	const struct work_shape *shape = &job->model->shape;
	uint64_t end = (uint64_t)store_seq_n_tokens(part->seq->store) + part->n_new;
	uint64_t row_bytes = (end / job->plan.segment_tokens + 2) * shape->n_q_heads *
			     (shape->head_dim + 2) * sizeof(float);
	uint64_t most = SLICE_PARTIALS_BYTES / row_bytes + 1;

	return most < s->config->prefill_rows ? (uint32_t)most : s->config->prefill_rows;
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

	s->batch.prefill = true;
	s->batch.slice_part = step->next_part;
	s->batch.slice_row = step->next_row;
	s->batch.slice_rows = left < most ? left : most;
	return 0;
}

/* ---- prefill: one slice ----------------------------------------------------------------------------------- */

static int slice_make(struct sched *s, struct batch_job *job)
{
	struct batch *b = &s->batch;
	const struct step_part *part = &b->lanes[0]->step.parts[b->slice_part];
	uint32_t n_slots;
	const struct store_slice *slots = store_seq_slots(part->seq->store, &n_slots);

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
	return job_plan(job);
}

/* ---- the batch's way ------------------------------------------------------------------------------------------ */

static int job_make(struct sched *s, struct batch_job *job)
{
	if (s->batch.prefill)
		return slice_make(s, job);
	enum fit fit = job_fit(s, job);

	if (fit == FIT_A_TOKEN_LATER)
		fit = job_advance(s, job);
	int r = fit == FIT_NOT ? job_make_tree(s, job) : 0;

	if (r == 0)
		job_fill_io(s, job);
	return r;
}

static int batch_make(struct sched *s)
{
	struct batch *b = &s->batch;

	if (RESERVE(b->backend_jobs, b->backend_jobs_room, b->n_jobs) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		struct batch_job *job = &b->jobs[i];
		int r = job_make(s, job);

		if (r < 0)
			return r;
		b->backend_jobs[i] = backend_job_of(s, job);
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

static int batch_try(struct sched *s)
{
	struct batch *b = &s->batch;
	struct backend_batch batch = {.n_jobs = b->n_jobs};
	int r = batch_make(s);

	batch.jobs = b->backend_jobs;
	return r < 0 ? r : s->ops->submit(s->backend, &batch, &b->id);
}

/* The backend keeps plans for a while only, and one that has taken in tokens cannot be had from its list again. */
static int batch_start(struct sched *s)
{
	int r = batch_try(s);

	if (r != -ESTALE)
		return r;
	for (uint32_t i = 0; i < s->batch.n_jobs; i++)
		s->batch.jobs[i].n_planned *= !s->batch.jobs[i].advanced;
	return batch_try(s);
}

/* One job alone, the others' steps stay parked: a job that cannot be run fails nobody but its own. */
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
	b->in_flight = true;
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

bool batch_poll(struct sched *s)
{
	struct batch *b = &s->batch;
	uint64_t completed;

	if (s->ops->completed(s->backend, &completed) < 0) {
		sched_fail(s);
		batch_fail(s);
		return true;
	}
	if (completed < b->id)
		return false;
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
}

void batch_done(struct batch *b)
{
	for (uint32_t i = 0; i < b->jobs_room; i++) {
		struct batch_job *job = &b->jobs[i];

		plan_list_done(&job->list);
		free(job->nodes);
		free(job->slices);
		free(job->queries);
		free(job->io);
		free(job->planned);
	}
	free(b->jobs);
	free(b->backend_jobs);
	free(b->lanes);
}
