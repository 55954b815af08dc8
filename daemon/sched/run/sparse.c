/*
 * sparse.c - from a slice's rows to the blocks that they see.
 *
 * K and V of the rows go to their pages first: the estimate reads K there. Then masses, then
 * blocks, then a job of them. Whatever of that fails for want of memory leaves the batch as it
 * came: exact attention is always right, and only slower.
 */
#include "sparse.h"

#include "daemon/base/grow.h"
#include "daemon/sched/step/step_check.h"
#include "job.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A slice being chosen for. */
struct choice {
	const struct sched_core *core;
	struct sparse *sparse;
	const struct plan *plan; /* the slice's */
	const struct work_shape *shape;
	const struct backend_job *exact;
	const struct abi_sparse *wish;
	struct select_chunk chunk;
	uint32_t n_ranges, n_words;
};

/* ---- what there is -------------------------------------------------------------------------- */

static bool is_wanted(const struct sparse_slice *slice)
{
	return slice->chooses && slice->job->plan->tree.n_queries == 1;
}

static struct choice choice_of(struct sparse *x, const struct sparse_slice *slice)
{
	x->tree = slice->job->plan->tree;
	return (struct choice){.core = slice->core,
			       .sparse = x,
			       .plan = slice->job->plan,
			       .shape = &slice->job->model->shape,
			       .exact = slice->exact,
			       .wish = &slice->part->seq->sparse};
}

static void choice_cut(struct choice *c)
{
	const struct work_query *query = &c->plan->tree.queries[0];
	uint32_t stride = c->wish->stride, block = c->wish->block_tokens;

	c->chunk = (struct select_chunk){
		.block_tokens = block,
		.pos = query->pos,
		.n = query->n_rows,
		.skip = (stride - query->pos % stride) % stride,
		.n_blocks = ceil_div(query->pos + query->n_rows, block),
	};
	if (c->chunk.n > c->chunk.skip)
		c->n_ranges = select_n_ranges(&c->chunk);
	c->n_words = select_n_words(c->chunk.n_blocks);
}

static int choice_reserve(struct choice *c)
{
	struct sparse *x = c->sparse;
	uint32_t n_heads = c->shape->n_kv_heads;

	if (GROW_ZEROED(x->lists, x->lists_room, n_heads) < 0 ||
	    GROW(x->jobs, x->jobs_room, n_heads) < 0 ||
	    GROW(x->path, x->path_room, c->sparse->tree.n_slices) < 0 ||
	    GROW(x->queries, x->queries_room, c->n_ranges) < 0 ||
	    GROW(x->io, x->io_room, c->n_ranges) < 0 ||
	    GROW(x->chosen, x->chosen_room, c->n_ranges) < 0 ||
	    GROW(x->ranges, x->ranges_room, c->n_ranges) < 0)
		return -ENOMEM;
	return 0;
}

/* Slices from the root down, in order. */
static uint32_t collect_path(struct choice *c)
{
	const struct work_node *nodes = c->sparse->tree.nodes;
	uint32_t leaf = c->sparse->tree.queries[0].node, n = 0, at;

	for (uint32_t node = leaf; node != WORK_NONE; node = nodes[node].parent)
		n += nodes[node].n_slices;
	at = n;
	for (uint32_t node = leaf; node != WORK_NONE; node = nodes[node].parent) {
		at -= nodes[node].n_slices;
		memcpy(c->sparse->path + at, c->sparse->tree.slices + nodes[node].slice,
		       nodes[node].n_slices * sizeof(*c->sparse->path));
	}
	return n;
}

/* ---- what is to be done --------------------------------------------------------------------- */

/* K has to be in its pages before anything can be estimated from it. */
static int append_rows(struct choice *c)
{
	struct backend_io io = c->exact->io[0];
	struct backend_job job = *c->exact;
	uint64_t id;

	io.o = io.lse = 0;
	job.io = &io;
	return c->core->ops->submit(c->core->backend, &(struct backend_batch){&job, 1}, &id);
}

static struct backend_estimate estimate_of(struct choice *c)
{
	const struct backend_io *io = &c->exact->io[0];

	return (struct backend_estimate){
		.shape = c->exact->shape,
		.slices = c->sparse->path,
		.n_slices = collect_path(c),
		.layer = c->exact->layer,
		.q = io->q + c->chunk.skip * io->q_stride,
		.q_stride = io->q_stride,
		.n_q = c->chunk.n - c->chunk.skip,
		.q_pos = c->chunk.pos + c->chunk.skip,
		.n_k = c->chunk.pos + c->chunk.n,
		.stride = c->wish->stride,
		.block_tokens = c->wish->block_tokens,
	};
}

/* By their masses, which the backend leaves here. */
static int select_heads(struct choice *c, const struct backend_estimate *estimate,
			const struct select_config *config, struct select_shares *shares)
{
	struct sparse *x = c->sparse;
	uint32_t n_heads = c->shape->n_kv_heads;
	const float *mass = NULL;
	int r = c->core->ops->estimate(c->core->backend, estimate, &mass);

	if (!r && GROW(x->bits, x->bits_room, n_heads * c->n_ranges * c->n_words) < 0)
		r = -ENOMEM;
	for (uint32_t head = 0; head < n_heads && !r; head++)
		r = select_chunk(config, &c->chunk,
				 mass + (size_t)head * c->n_ranges * c->chunk.n_blocks,
				 x->bits + (size_t)head * c->n_ranges * c->n_words, shares);
	x->kept = x->bits;
	return r;
}

static int choose_blocks(struct choice *c, struct select_shares *shares)
{
	const struct sched_core *core = c->core;
	const struct select_config config = {.tau = c->wish->tau,
					     .sink_blocks = c->wish->sink_blocks,
					     .recent_blocks = c->wish->recent_blocks};
	const struct backend_estimate estimate = estimate_of(c);

	if (!core->ops->choose)
		return select_heads(c, &estimate, &config, shares);
	return core->ops->choose(core->backend, &estimate, &config, &c->chunk, &c->sparse->kept,
				 shares);
}

/* A query for each block of rows; what they append is there already. */
static void cut_query(struct choice *c)
{
	const struct work_query *whole = &c->plan->tree.queries[0];
	const struct backend_io *io = &c->exact->io[0];

	for (uint32_t i = 0; i < c->n_ranges; i++) {
		struct select_range range = select_range_at(&c->chunk, i);
		struct backend_io *part = &c->sparse->io[i];
		c->sparse->queries[i] = (struct work_query){.node = whole->node,
							    .pos = whole->pos + range.begin,
							    .n_rows = range.end - range.begin};
		*part = *io;
		part->q += range.begin * io->q_stride;
		part->o += range.begin * io->o_stride;
		part->lse += io->lse ? range.begin * io->lse_stride : 0;
		part->slots = NULL;
		part->n_slots = 0;
	}
	c->sparse->tree.queries = c->sparse->queries;
	c->sparse->tree.n_queries = c->n_ranges;
}

static const uint64_t *kept_of(const struct choice *c, uint32_t head)
{
	return c->sparse->kept + (size_t)head * c->n_ranges * c->n_words;
}

/* Of the path x->path, for these ranges of rows. Has the backend better do that than what it was
 * given? */
static bool take_chosen(struct choice *c, struct backend_chosen blocks, const struct backend_io *io)
{
	struct sparse *x = c->sparse;

	blocks.slices = x->path;
	x->blocks = blocks;
	x->jobs[0] = *c->exact;
	x->jobs[0].io = io;
	return job_see_chosen(c->core, &x->jobs[0], &x->blocks);
}

/* One job, if the backend makes of chosen blocks what it needs. */
static bool choose_at_once(struct choice *c)
{
	struct sparse *x = c->sparse;

	for (uint32_t i = 0; i < c->n_ranges; i++)
		x->ranges[i] = select_range_at(&c->chunk, i).begin;
	x->io[0] = c->exact->io[0];
	x->io[0].slots = NULL;
	x->io[0].n_slots = 0;
	return take_chosen(c,
			   (struct backend_chosen){.n_slices = collect_path(c),
						   .block_tokens = c->wish->block_tokens,
						   .n_blocks = c->chunk.n_blocks,
						   .n_ranges = c->n_ranges,
						   .ranges = x->ranges,
						   .kept = x->kept},
			   x->io);
}

static int choose_head(struct choice *c, uint32_t head)
{
	struct sparse *x = c->sparse;
	struct backend_job whole = *c->exact;
	const struct job_heads heads = {.head = head,
					.n_heads = 1,
					.seen = x->chosen,
					.block_tokens = c->wish->block_tokens,
					.config = &c->plan->config,
					.list = &x->lists[head]};

	for (uint32_t i = 0; i < c->n_ranges; i++)
		x->chosen[i] =
			(struct select_query){.kept = kept_of(c, head) + (size_t)i * c->n_words,
					      .n_blocks = c->chunk.n_blocks};
	whole.tree = &x->tree;
	whole.io = x->io;
	whole.plan_id = 0;
	return job_for_heads(&whole, &heads, &x->jobs[head]);
}

static int choose(struct choice *c, struct select_shares *shares, uint32_t *ret_n_jobs)
{
	uint32_t n_heads = c->shape->n_kv_heads;
	int r = choice_reserve(c);

	if (!r)
		r = append_rows(c);
	if (!r)
		r = choose_blocks(c, shares);
	if (r)
		return r;
	*ret_n_jobs = 1;
	if (choose_at_once(c))
		return 0;
	*ret_n_jobs = n_heads;
	cut_query(c);
	for (uint32_t head = 0; head < n_heads && !r; head++)
		r = choose_head(c, head);
	return r;
}

/* Exact, and so long that the backend does better without the list. */
static void take_everything(struct sparse *x, const struct sparse_slice *slice,
			    struct backend_batch *batch)
{
	static const uint32_t first[1] = {0};
	struct choice c = choice_of(x, slice);
	const struct work_query *query = &x->tree.queries[0];
	uint32_t end = query->pos + query->n_rows;

	if (!c.core->ops->takes_chosen || slice->part->seq->parents || x->tree.n_queries != 1 ||
	    !slice->part->io.o)
		return;
	if (GROW(x->jobs, x->jobs_room, 1) < 0 || GROW(x->path, x->path_room, x->tree.n_slices) < 0)
		return;
	const struct backend_chosen everything = {
		.n_slices = collect_path(&c),
		.block_tokens = (uint32_t)round_up(end, WORK_TILE_TOKENS),
		.n_blocks = 1,
		.n_ranges = 1,
		.ranges = first,
	};
	if (take_chosen(&c, everything, c.exact->io))
		batch->jobs = x->jobs;
}

int sparse_choose(struct sparse *x, const struct sparse_slice *slice, struct backend_batch *batch)
{
	struct select_shares shares = {0};
	uint32_t n_jobs;

	x->shares = shares;
	if (!is_wanted(slice)) {
		take_everything(x, slice, batch);
		return 0;
	}
	struct choice c = choice_of(x, slice);

	choice_cut(&c);
	if (c.n_ranges == 0)
		return 0;
	int r = choose(&c, &shares, &n_jobs);

	if (r)
		return r == -EIO ? r : 0;
	batch->jobs = x->jobs;
	batch->n_jobs = n_jobs;
	x->shares = shares;
	return 0;
}

void sparse_done(struct sparse *sparse)
{
	for (uint32_t i = 0; i < sparse->lists_room; i++)
		plan_list_done(&sparse->lists[i]);
	free(sparse->lists);
	free(sparse->jobs);
	free(sparse->path);
	free(sparse->queries);
	free(sparse->io);
	free(sparse->chosen);
	free(sparse->bits);
	free(sparse->ranges);
	*sparse = (struct sparse){0};
}
