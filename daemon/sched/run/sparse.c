/* sparse.c - see sparse.h. */
#include "sparse.h"

#include "daemon/base/grow.h"
#include "daemon/sched/sched_impl.h"
#include "daemon/sched/step/step.h"

#include "kernels/cpu/estimate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE_BLOCK_MIN 8u /* a block has so many strides at least */
#define BLOCK_MAX 65536u

/* A slice being chosen for. */
struct choice {
	struct sched *s;
	struct sparse *sparse;
	const struct batch_job *job;
	const struct backend_job *exact;
	const struct abi_sparse *wish;
	struct select_chunk chunk;
	uint32_t n_ranges, n_words;
};

bool sparse_is_sane(const struct abi_sparse *wish)
{
	uint32_t block = wish->block_tokens;

	return wish->tau > 0 && wish->tau <= 1 && (wish->stride == 8 || wish->stride == 16) &&
	       block > 0 && block <= BLOCK_MAX && block % WORK_TILE_TOKENS == 0 &&
	       block % (STRIDE_BLOCK_MIN * wish->stride) == 0 && (block & (block - 1)) == 0;
}

/* ---- what there is -------------------------------------------------------------------------- */

static bool is_wanted(const struct sched *s, const struct step_part *part,
		      const struct batch_job *job)
{
	return step_may_be_sparse(part) && s->ops->estimate && job->tree.n_queries == 1;
}

static void choice_init(struct choice *c, struct sched *s, const struct step_part *part)
{
	const struct batch_job *job = &s->batch.jobs[0];
	const struct work_query *query = &job->tree.queries[0];
	uint32_t stride = part->seq->sparse.stride, block = part->seq->sparse.block_tokens;

	*c = (struct choice){.s = s,
			     .sparse = &s->batch.sparse,
			     .job = job,
			     .exact = &s->batch.backend_jobs[0],
			     .wish = &part->seq->sparse};
	c->sparse->tree = job->tree;
	c->chunk = (struct select_chunk){
		.block_tokens = block,
		.pos = query->pos,
		.n = query->n_rows,
		.skip = (stride - query->pos % stride) % stride,
		.n_blocks = estimate_n_blocks(query->pos + query->n_rows, block),
	};
	if (c->chunk.n > c->chunk.skip)
		c->n_ranges = select_n_ranges(&c->chunk);
	c->n_words = select_n_words(c->chunk.n_blocks);
}

static int choice_reserve(struct choice *c)
{
	struct sparse *x = c->sparse;
	uint32_t n_heads = c->job->model->shape.n_kv_heads, had = x->lists_room;

	if (GROW(x->lists, x->lists_room, n_heads) < 0)
		return -ENOMEM;
	memset(x->lists + had, 0, (x->lists_room - had) * sizeof(*x->lists));
	if (GROW(x->jobs, x->jobs_room, n_heads) < 0 ||
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
	return c->s->ops->submit(c->s->backend, &(struct backend_batch){&job, 1}, &id);
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
	uint32_t n_heads = c->job->model->shape.n_kv_heads;
	const float *mass = NULL;
	int r = c->s->ops->estimate(c->s->backend, estimate, &mass);

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
	const struct sched *s = c->s;
	const struct select_config config = {.tau = c->wish->tau,
					     .sink_blocks = c->wish->sink_blocks,
					     .recent_blocks = c->wish->recent_blocks};
	const struct backend_estimate estimate = estimate_of(c);

	if (!s->ops->choose)
		return select_heads(c, &estimate, &config, shares);
	return s->ops->choose(s->backend, &estimate, &config, &c->chunk, &c->sparse->kept, shares);
}

/* A query for each block of rows; what they append is there already. */
static void cut_query(struct choice *c)
{
	const struct work_query *whole = &c->job->tree.queries[0];
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
static bool take_chosen(struct sched *s, struct backend_chosen blocks, const struct backend_io *io)
{
	struct sparse *x = &s->batch.sparse;

	if (!s->ops->takes_chosen)
		return false;
	blocks.slices = x->path;
	x->blocks = blocks;
	x->jobs[0] = s->batch.backend_jobs[0];
	x->jobs[0].io = io;
	x->jobs[0].chosen = &x->blocks;
	return s->ops->takes_chosen(s->backend, &x->jobs[0]);
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
	return take_chosen(c->s,
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
	struct backend_job *job = &c->sparse->jobs[head];

	for (uint32_t i = 0; i < c->n_ranges; i++)
		c->sparse->chosen[i] =
			(struct select_query){.kept = kept_of(c, head) + (size_t)i * c->n_words,
					      .n_blocks = c->chunk.n_blocks};
	*job = *c->exact;
	job->tree = &c->sparse->tree;
	job->list = &c->sparse->lists[head];
	job->io = c->sparse->io;
	job->plan_id = 0;
	job->head = head;
	job->n_heads = 1;
	return select_plan(&c->job->plan, &c->sparse->tree, c->sparse->chosen,
			   c->wish->block_tokens, &c->sparse->lists[head]);
}

static int choose(struct choice *c, struct select_shares *shares, uint32_t *ret_n_jobs)
{
	uint32_t n_heads = c->job->model->shape.n_kv_heads;
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
static void take_everything(struct sched *s, const struct step_part *part,
			    struct backend_batch *batch)
{
	static const uint32_t first[1] = {0};
	struct sparse *x = &s->batch.sparse;
	struct choice c = {.s = s, .sparse = x, .job = &s->batch.jobs[0]};
	const struct work_query *query = &c.job->tree.queries[0];
	uint32_t end = query->pos + query->n_rows;

	if (!s->ops->takes_chosen || part->seq->parents || c.job->tree.n_queries != 1 ||
	    !part->io.o)
		return;
	x->tree = c.job->tree;
	if (GROW(x->jobs, x->jobs_room, 1) < 0 || GROW(x->path, x->path_room, x->tree.n_slices) < 0)
		return;
	const struct backend_chosen everything = {
		.n_slices = collect_path(&c),
		.block_tokens = (end + WORK_TILE_TOKENS - 1) / WORK_TILE_TOKENS * WORK_TILE_TOKENS,
		.n_blocks = 1,
		.n_ranges = 1,
		.ranges = first,
	};
	if (take_chosen(s, everything, s->batch.backend_jobs[0].io))
		batch->jobs = x->jobs;
}

int sparse_choose(struct sched *s, struct backend_batch *batch)
{
	const struct step_part *part = &s->batch.lanes[0]->step.parts[s->batch.slice_part];
	struct select_shares shares = {0};
	struct choice c;
	uint32_t n_jobs;
	int r;

	s->batch.sparse.shares = shares;
	if (!is_wanted(s, part, &s->batch.jobs[0])) {
		take_everything(s, part, batch);
		return 0;
	}
	choice_init(&c, s, part);
	if (c.n_ranges == 0)
		return 0;
	r = choose(&c, &shares, &n_jobs);
	if (r)
		return r == -EIO ? r : 0;
	batch->jobs = s->batch.sparse.jobs;
	batch->n_jobs = n_jobs;
	s->batch.sparse.shares = shares;
	return 0;
}

void sparse_count(struct sched *s)
{
	select_add_shares(&s->batch.lanes[0]->step.shares, &s->batch.sparse.shares);
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
