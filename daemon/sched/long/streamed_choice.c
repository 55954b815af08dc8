/*
 * streamed_choice.c - what sparse prefill sees of a path that is streamed.
 *
 * The blocks of a path are chosen by its summary before anything of it is brought, once for all
 * rows of a slice: what one of them needs comes for all. As legs go by, what they see goes into
 * the summary. Where no summary can be had, or it does not know the path yet, all is seen.
 */
#include "streamed_impl.h"

#include "daemon/base/grow.h"
#include "daemon/sched/run/job.h"
#include "daemon/sched/seq/summary.h"
#include "daemon/sched/step/step_check.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADS_MAX 64u
#define WINDOW_TOKENS 32u
/* And heads: two rounds of all of a device's multiprocessors, 128 of them at a time. */
#define WIDE_ROWS 32768u
/* A leg is one: states are merged with those of other legs anyway. */
#define SEGMENT_TOKENS (UINT32_C(1) << 30)

static struct sched_seq *seq_of(const struct streamed *p)
{
	return p->members[0].part->seq;
}

/* Position of the slice's first row. */
static uint32_t first_pos(const struct streamed *p)
{
	return store_seq_n_tokens(seq_of(p)->store) + p->members[0].row;
}

int choice_take_in(struct streamed *p, const struct streamed_view *v)
{
	const struct work_node *node = &v->tree.nodes[0];

	if (!p->choice.sums || node->pos + node->n_tokens <= seq_of(p)->summary.n_known[p->layer])
		return 0;
	const struct backend_span span = {.shape = &v->shape,
					  .slices = v->tree.slices + node->slice,
					  .n_slices = node->n_slices,
					  .layer = v->layer,
					  .to_layer = p->layer,
					  .pos = node->pos};
	int r = p->core->ops->tier->summary->add(p->core->backend, seq_of(p)->summary.of, &span);

	p->choice.sums = r == 0;
	return r == -EIO ? r : 0;
}

/* ---- the choice ----------------------------------------------------------------------------- */

static bool is_wanted(const struct streamed *p, const struct step_part *part)
{
	return step_may_be_sparse(part) && p->core->ops->estimate && p->core->ops->tier->summary &&
	       part->seq->model->shape.n_kv_heads <= HEADS_MAX;
}

static int reserve(struct streamed *p)
{
	struct streamed_choice *c = &p->choice;
	uint32_t n_heads = p->model->shape.n_kv_heads;

	if (GROW(c->kept, c->kept_room, (n_heads + 1) * c->n_words) < 0 ||
	    GROW(c->masses, c->masses_room, c->n_blocks) < 0)
		return -ENOMEM;
	return 0;
}

/* Rows before the first multiple of 8 go with the others. */
static int estimate(struct streamed *p, uint32_t skip)
{
	const struct streamed_member *m = &p->members[0];
	const struct backend_io *io = &m->part->io;
	const struct backend_estimate of = {.shape = &p->model->shape,
					    .summary = seq_of(p)->summary.of,
					    .layer = p->layer,
					    .q = io->q + (m->row + skip) * io->q_stride,
					    .q_stride = io->q_stride,
					    .n_q = m->n_rows - skip,
					    .q_pos = first_pos(p) + skip,
					    .n_k = first_pos(p) + m->n_rows,
					    .stride = BACKEND_SUMMARY_TOKENS,
					    .block_tokens = p->choice.block_tokens,
					    .rows_id = skip ? 0 : p->rows_id};

	return p->core->ops->estimate(p->core->backend, &of, &p->choice.mass);
}

/* Blocks that so many of the wish's begin in. */
static uint32_t blocks_of(const struct streamed *p, uint32_t n)
{
	uint64_t n_tokens = (uint64_t)n * seq_of(p)->sparse.block_tokens;

	return n_tokens > UINT32_MAX ? UINT32_MAX
				     : ceil_div((uint32_t)n_tokens, p->choice.block_tokens);
}

/* The slice's rows have one choice: what one of them needs comes for all. */
static int choose_head(struct streamed *p, uint32_t head, uint32_t n_ranges,
		       struct select_result *ret)
{
	const struct streamed_choice *c = &p->choice;
	const struct abi_sparse *wish = &seq_of(p)->sparse;
	uint32_t own = c->n_blocks - first_pos(p) / c->block_tokens;
	struct select_config config = {.tau = wish->tau,
				       .sink_blocks = blocks_of(p, wish->sink_blocks),
				       .recent_blocks = blocks_of(p, wish->recent_blocks)};

	config.recent_blocks = max_u32(config.recent_blocks, own);
	memset(c->masses, 0, c->n_blocks * sizeof(*c->masses));
	for (uint32_t i = 0; i < n_ranges; i++)
		for (uint32_t j = 0; j < c->n_blocks; j++)
			c->masses[j] +=
				(double)c->mass[((size_t)head * n_ranges + i) * c->n_blocks + j];
	return select_blocks(&config, c->masses, c->n_blocks, c->kept + (size_t)head * c->n_words,
			     ret);
}

/* Bits of those blocks that any head has. */
static void join_heads(struct streamed *p)
{
	uint32_t n_heads = p->model->shape.n_kv_heads, n = p->choice.n_words;
	uint64_t *any = p->choice.kept + (size_t)n_heads * n;

	memcpy(any, p->choice.kept, n * sizeof(*any));
	for (uint32_t head = 1; head < n_heads; head++)
		for (uint32_t i = 0; i < n; i++)
			any[i] |= choice_bits(p, head)[i];
}

/* Of a slice that begins there: rows before the first that the estimate can take. */
static uint32_t rows_before(uint32_t pos)
{
	return ceil_div(pos, BACKEND_SUMMARY_TOKENS) * BACKEND_SUMMARY_TOKENS - pos;
}

static int choose(struct streamed *p, uint32_t skip)
{
	uint32_t n_rows = p->members[0].n_rows, n_heads = p->model->shape.n_kv_heads;
	uint32_t n_ranges = ceil_div(n_rows - skip, p->choice.block_tokens);
	struct select_shares sum = {0};
	int r = estimate(p, skip);

	for (uint32_t head = 0; head < n_heads && r == 0; head++) {
		struct select_result result;

		r = choose_head(p, head, n_ranges, &result);
		if (r < 0)
			return r;
		sum.attended += (double)n_rows * result.n_kept;
		sum.visible += (double)n_rows * p->choice.n_blocks;
		sum.kept_mass += result.kept_mass;
		sum.total_mass += result.total_mass;
	}
	if (r < 0)
		return r;
	join_heads(p);
	p->choice.shares = sum;
	return 0;
}

bool choice_begin(struct streamed *p)
{
	struct streamed_choice *c = &p->choice;
	const struct streamed_member *m = &p->members[0];
	uint32_t pos = first_pos(p), end = pos + m->n_rows;

	if (!is_wanted(p, m->part) || summary_reserve(p->core, seq_of(p), end) < 0)
		return false;
	c->sums = true;
	c->block_tokens = p->core->config->stage_block;
	c->n_blocks = ceil_div(end, c->block_tokens);
	c->n_words = select_n_words(c->n_blocks);
	return seq_of(p)->summary.n_known[p->layer] >= pos && m->n_rows > rows_before(pos) &&
	       reserve(p) == 0;
}

int choice_make(struct streamed *p)
{
	struct streamed_choice *c = &p->choice;
	uint32_t pos = first_pos(p);

	c->appended = true;
	if (!c->sums)
		return 0;
	seq_of(p)->summary.n_known[p->layer] = pos + p->members[0].n_rows;
	int r = choose(p, rows_before(pos));

	c->made = r == 0;
	return r == -EIO ? r : 0;
}

void choice_end(struct streamed *p)
{
	if (p->choice.sums)
		seq_of(p)->summary.n_known[p->layer] = first_pos(p) + p->members[0].n_rows;
}

/* ---- a leg ----------------------------------------------------------------------------------- */

/* Of blocks [begin, end): do both heads see the same? */
static bool see_alike(const struct streamed *p, uint32_t a, uint32_t b, uint32_t begin,
		      uint32_t end)
{
	for (uint32_t i = begin; i < end; i++)
		if (select_has(choice_bits(p, a), i) != select_has(choice_bits(p, b), i))
			return false;
	return true;
}

static bool sees_any(const struct streamed *p, uint32_t head, uint32_t begin, uint32_t end)
{
	for (uint32_t i = begin; i < end; i++)
		if (select_has(choice_bits(p, head), i))
			return true;
	return false;
}

/* Bits of a slice's windows, of which it may have two, for the heads that see it. */
static void windows_see(const struct streamed *p, const struct streamed_leg *leg, uint32_t pos,
			uint32_t n_tokens, struct streamed_view *v)
{
	uint32_t n_heads = p->model->shape.n_kv_heads, n_words = select_n_words(v->chosen.n_blocks);
	uint32_t begin = pos / WINDOW_TOKENS, end = ceil_div(pos + n_tokens, WINDOW_TOKENS);

	for (uint32_t head = 0; head < n_heads; head++) {
		if (leg->kind != STREAMED_REST && !choice_has(p, head, pos))
			continue;
		for (uint32_t i = begin; i < end; i++)
			v->kept[head * n_words + i / 64] |= UINT64_C(1) << i % 64;
	}
}

/* The path up to the leg's end: what is not seen in it, or not in it, is not there. Bits of windows
 * that are. False: no memory. */
static bool find_windows(struct streamed *p, const struct streamed_leg *leg,
			 struct streamed_view *v)
{
	const struct gather *g = streamed_gather(p, leg);
	const struct work_node *node = &v->nodes[0];
	uint32_t n_heads = p->model->shape.n_kv_heads, pos = 0, n_words;
	uint32_t begin = leg->kind == STREAMED_REST ? g->n_slices : leg->begin;
	uint32_t n = begin + node->n_slices;

	v->chosen.n_blocks = ceil_div(node->pos + node->n_tokens, WINDOW_TOKENS);
	v->chosen.n_slices = n;
	n_words = select_n_words(v->chosen.n_blocks);
	if (GROW(v->path, v->path_room, n) < 0 ||
	    GROW(v->kept, v->kept_room, n_heads * n_words) < 0)
		return false;
	memset(v->kept, 0, (size_t)n_heads * n_words * sizeof(*v->kept));
	for (uint32_t i = 0; i < begin; i++)
		v->path[i] = (struct work_slice){WORK_NONE, g->slices[i].first, g->slices[i].count};
	pos = node->pos;
	for (uint32_t i = begin; i < n; pos += v->path[i++].count) {
		v->path[i] = v->slices[node->slice + i - begin];
		if (leg->kind != STREAMED_REST && !choice_has(p, n_heads, pos))
			v->path[i].page = WORK_NONE;
		else
			windows_see(p, leg, pos, v->path[i].count, v);
	}
	return true;
}

/* Has a job of chosen windows enough to do for a device, whose units it does not cut? A list takes
 * the processor longer: of what is causal 3.4 ms for 4,096 rows, more than the device needs. */
static bool is_wide(const struct streamed *p, const struct streamed_view *v)
{
	return v->tree.n_queries == 1 && !v->queries[0].parents && v->io[0].o &&
	       v->queries[0].n_rows * p->model->shape.n_q_heads >= WIDE_ROWS;
}

/* One job, if the backend makes of chosen windows what it needs: pages have whole windows then. */
static bool jobs_at_once(struct streamed *p, const struct streamed_leg *leg,
			 struct streamed_view *v)
{
	static const uint32_t first[1] = {0};
	bool parts = p->choice.made && leg->kind != STREAMED_REST;

	if (!p->core->ops->takes_chosen || v->shape.page_tokens % WINDOW_TOKENS ||
	    !(parts || is_wide(p, v)) || !find_windows(p, leg, v))
		return false;
	v->chosen.slices = v->path;
	v->chosen.block_tokens = WINDOW_TOKENS;
	v->chosen.n_ranges = 1;
	v->chosen.ranges = first;
	v->chosen.kept = v->kept;
	return job_see_chosen(p->core, &v->jobs[0], &v->chosen);
}

/* Lists of KV heads that see what they see of the leg. */
static int jobs_of_heads(struct streamed *p, const struct plan_config *plan,
			 struct streamed_view *v)
{
	const struct streamed_choice *c = &p->choice;
	const struct work_node *node = &v->nodes[0];
	uint32_t begin = node->pos / c->block_tokens, n_heads = p->model->shape.n_kv_heads;
	uint32_t end = ceil_div(node->pos + node->n_tokens, c->block_tokens), next;
	struct plan_config config = *plan;
	const struct backend_job whole = v->jobs[0];
	int r = 0;

	if (GROW_ZEROED(v->lists, v->lists_room, n_heads) < 0 ||
	    GROW(v->jobs, v->jobs_room, n_heads) < 0)
		return -ENOMEM;
	config.segment_tokens = SEGMENT_TOKENS;
	v->n_jobs = 0;
	for (uint32_t head = 0; head < n_heads && r == 0; head = next) {
		const struct select_query query = {choice_bits(p, head), c->n_blocks};

		for (next = head + 1; next < n_heads && see_alike(p, head, next, begin, end);)
			next++;
		if (!sees_any(p, head, begin, end))
			continue;
		const struct job_heads heads = {.head = head,
						.n_heads = next - head,
						.seen = &query,
						.block_tokens = c->block_tokens,
						.config = &config,
						.list = &v->lists[v->n_jobs]};

		r = job_for_heads(&whole, &heads, &v->jobs[v->n_jobs]);
		v->n_jobs += r == 0;
	}
	return r;
}

int choice_jobs(struct streamed *p, const struct streamed_leg *leg, const struct plan_config *plan,
		struct streamed_view *v)
{
	int r = plan_make(plan, &v->tree, &v->lists[0]); /* of chosen windows its rows count */

	if (r < 0 || jobs_at_once(p, leg, v))
		return r;
	return p->choice.made && leg->kind != STREAMED_REST ? jobs_of_heads(p, plan, v) : 0;
}

void choice_done(struct streamed_choice *choice)
{
	free(choice->kept);
	free(choice->masses);
}
