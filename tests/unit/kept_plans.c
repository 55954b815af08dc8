/*
 * kept_plans.c - see kept_plans.h. A job under a kept plan is given to the CPU with a tree that is
 * read out of the plan's schedule: each query is a node of the tokens that its row sees.
 */
#include "kept_plans.h"

#include "kernels/cuda/batch/batch_impl.h"
#include "kernels/plan/plan.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_BLOCKS 132u

uint64_t kept_plans_n_taken, kept_plans_n_stale;

static struct pool pool;
static struct batch batch;

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

/* ---- what a row sees ------------------------------------------------------------------------ */

/* A job as the CPU gets it. */
struct seen_job {
	struct work_tree tree;
	struct work_list list; /* owned */
	struct work_node *nodes; /* owned, as what follows */
	struct work_query *queries;
	struct work_slice *slices; /* of a token each */
};

/* A row's tokens: slices, by position; of those that it does not see yet the count is 0. */
struct sight {
	const struct batch_plan *plan;
	const struct work_shape *shape;
	struct work_slice *slices;
	uint32_t row, pos; /* of the schedule; of the row's token */
};

static void see_token(const struct sight *s, uint32_t pos, uint32_t source, uint32_t i)
{
	struct pool_pages pages = shape_pages(&pool, s->shape);
	uint32_t in_extent = (uint32_t)(source % pages.extent_sources);
	uint32_t in_page = (uint32_t)(in_extent % pages.page_sources);

	assert_true(pos <= s->pos);
	assert_int_equal(s->slices[pos].count, 0);
	s->slices[pos] = (struct work_slice){
		(uint32_t)(source / pages.extent_sources * pages.per_extent +
			   in_extent / pages.page_sources),
		(uint16_t)(in_page / kv_block_sources(s->shape) * KV_BLOCK_TOKENS + i), 1};
}

static void see_kv_block(const struct sight *s, const struct device_kv_block *g, bool causal,
			 uint32_t source)
{
	int64_t end = causal ? (int64_t)s->pos - g->pos + 1 : g->end;

	end = end < g->end ? end : g->end;
	for (int64_t i = g->first; i < end; i++)
		see_token(s, (uint32_t)(g->pos + i), source, (uint32_t)i);
}

static bool has_row_block(const struct device_work_tile *work_tile, uint32_t warps, uint32_t token)
{
	uint32_t n = 1u << work_tile->blocks_log2, block = token / work_tile->block_tokens;

	if (work_tile->flags & DEVICE_WORK_TILE_DEALT)
		block = token & (n - 1);
	for (uint32_t w = block; w < DEVICE_WARPS; w += n)
		if (warps >> w & 1)
			return true;
	return false;
}

static void see_work_tile(const struct sight *s, const struct device_work_tile *work_tile)
{
	uint32_t token = s->row - work_tile->row;

	for (uint32_t i = 0; i < work_tile->n_kv_tiles; i++) {
		uint32_t at = device_kv_tile_at(work_tile, i);
		const struct device_kv_tile *kv_tile = &s->plan->attend.kv_tiles[at];
		const uint32_t *sources =
			((const struct device_source *)s->plan->attend.sources)[at].kv_blocks;

		if (!has_row_block(work_tile, kv_tile->warps, token))
			continue;
		for (uint32_t j = 0; j < DEVICE_KV_TILE_BLOCKS; j++) {
			const struct device_kv_block *g = &kv_tile->kv_blocks[j];

			if (token >= g->row_begin && token < g->row_end)
				see_kv_block(s, g, kv_tile->causal, sources[j]);
		}
	}
}

static void see_row(const struct sight *s)
{
	for (uint32_t i = 0; i < s->plan->attend.n_work_tiles; i++) {
		const struct device_work_tile *work_tile = &s->plan->attend.work_tiles[i];

		if (s->row >= work_tile->row && s->row < work_tile->row + work_tile->n_rows)
			see_work_tile(s, work_tile);
	}
	for (uint32_t pos = 0; pos <= s->pos; pos++)
		assert_int_equal(s->slices[pos].count, 1);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

static bool is_kept(const struct backend_job *job)
{
	for (uint32_t i = 0; i < job->tree->n_queries; i++)
		if (job->tree->queries[i].n_rows != 1 || job->tree->queries[i].parents)
			return false;
	return job->plan_id != 0 && job->tree->n_queries > 0 && !job->chosen;
}

static void send_schedule(const struct batch_plan *plan, const struct schedule *schedule)
{
	for (uint32_t i = 0; i < SCHEDULE_N_ARRAYS; i++) {
		size_t bytes = schedule->n[i] * schedule_entry_bytes((enum schedule_array)i);

		if (bytes)
			memcpy((void *)(uintptr_t)plan->arrays[i], schedule->arrays[i].at, bytes);
	}
}

/* The device's part of a plan: its arrays, then the words that change. */
static int ready_plan(const struct backend_job *job, struct batch_plan **ret)
{
	struct batch_plan *plan = plan_find(&batch, job->plan_id, job->shape);
	const struct schedule *schedule;
	int r = 0;

	if (!plan && job->advanced && !ahead_find(&batch, job))
		return -ESTALE;
	if (!plan) {
		r = plan_prepare(&batch, job, NULL, &plan, &schedule);
		if (r == 0 && schedule)
			send_schedule(plan, schedule);
	}
	for (uint32_t i = 0; r == 0 && i < plan->growth.n_patches; i++) {
		const struct schedule_patch *patch = &plan->growth.patches[i];

		memcpy((char *)(uintptr_t)plan->arrays[patch->array] + patch->offset, &patch->value,
		       sizeof(patch->value));
	}
	if (r == 0) {
		schedule_growth_written(&plan->growth);
		plan->used = ++batch.uses;
		*ret = plan;
	}
	return r;
}

static void see_queries(const struct backend_job *job, const struct batch_plan *plan,
			struct seen_job *seen)
{
	uint32_t n_each = row_map_of(job->shape).n;

	for (uint32_t i = 0; i < job->list->n_rows; i++) {
		const struct work_row *row = &job->list->rows[i];
		const struct sight sight = {plan, job->shape, seen->slices + seen->tree.n_slices,
					    i * n_each, row->pos};

		see_row(&sight);
		seen->nodes[row->query] = (struct work_node){WORK_NONE, 0, row->pos + 1,
							     seen->tree.n_slices, row->pos + 1};
		seen->queries[row->query] =
			(struct work_query){.node = row->query, .pos = row->pos, .n_rows = 1};
		seen->tree.n_slices += row->pos + 1;
	}
}

static void see_job(const struct backend_job *job, const struct batch_plan *plan,
		    struct seen_job *seen, struct backend_job *ret)
{
	uint32_t n = job->tree->n_queries;
	uint64_t n_tokens = 0;
	struct plan_config config;

	for (uint32_t i = 0; i < job->list->n_rows; i++)
		n_tokens += job->list->rows[i].pos + 1;
	*seen = (struct seen_job){.nodes = calloc(n, sizeof(*seen->nodes)),
				  .queries = calloc(n, sizeof(*seen->queries)),
				  .slices = calloc(n_tokens, sizeof(*seen->slices))};
	assert_true(seen->nodes && seen->queries && seen->slices);
	see_queries(job, plan, seen);
	seen->tree = (struct work_tree){seen->nodes, seen->slices,	  seen->queries,
					n,	     seen->tree.n_slices, n};
	plan_config_init(&config, PLAN_AUTO, job->shape, 1);
	assert_int_equal(plan_make(&config, &seen->tree, &seen->list), 0);
	*ret = *job;
	ret->tree = &seen->tree;
	ret->list = &seen->list;
	ret->plan_id = ret->replaces = 0;
	ret->advanced = false;
}

static void seen_done(struct seen_job *seen)
{
	plan_list_done(&seen->list);
	free(seen->nodes);
	free(seen->queries);
	free(seen->slices);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static int kept_open(const struct backend_config *config, struct backend **ret, char *error,
		     size_t error_bytes)
{
	pool = (struct pool){.bytes = config->pool_bytes,
			     .extent_bytes = config->extent_bytes,
			     .n_extents = (uint32_t)(config->pool_bytes / config->extent_bytes)};
	batch = (struct batch){.pool = &pool,
			       .costs = costs_find(CODE_WGMMA),
			       .n_blocks = N_BLOCKS,
			       .all_blocks = N_BLOCKS,
			       .code = CODE_WGMMA};
	pthread_mutex_init(&batch.ahead.lock, NULL);
	kept_plans_n_taken = kept_plans_n_stale = 0;
	return backend_cpu.open(config, ret, error, error_bytes);
}

static void kept_close(struct backend *b)
{
	backend_cpu.close(b);
	for (uint32_t i = 0; i < BATCH_PLANS; i++) {
		plan_drop_tails(&batch.plans[i]);
		cudaFree(batch.plans[i].device.at);
	}
	schedule_done(&batch.schedule);
	ahead_done(&batch);
}

static uint32_t kept_tile_rows(struct backend *b, const struct work_shape *shape)
{
	(void)b;
	(void)shape;
	return PLAN_DEVICE_ROWS;
}

static int kept_advance(struct backend *b, const struct backend_job *job)
{
	int r = batch_advance(&batch, job);

	(void)b;
	kept_plans_n_taken += r >= 0;
	kept_plans_n_stale += r == -ESTALE;
	return r;
}

static int kept_prepare(struct backend *b, const struct backend_job *job)
{
	(void)b;
	return batch_make_ahead(&batch, job);
}

static int kept_submit(struct backend *b, const struct backend_batch *of, uint64_t *ret_id)
{
	struct backend_job *jobs = calloc(of->n_jobs + 1, sizeof(*jobs));
	struct seen_job *seen = calloc(of->n_jobs + 1, sizeof(*seen));
	struct backend_batch as_seen = *of;
	struct batch_plan *plan;
	int r = 0;

	assert_true(jobs && seen);
	batch.uses_before = batch.uses;
	for (uint32_t i = 0; i < of->n_jobs && r == 0; i++) {
		jobs[i] = of->jobs[i];
		if (!is_kept(&jobs[i]))
			continue;
		r = ready_plan(&of->jobs[i], &plan);
		if (r == 0)
			see_job(&of->jobs[i], plan, &seen[i], &jobs[i]);
	}
	as_seen.jobs = jobs;
	r = r ? r : backend_cpu.submit(b, &as_seen, ret_id);
	for (uint32_t i = 0; i < of->n_jobs; i++)
		seen_done(&seen[i]);
	free(seen);
	free(jobs);
	return r;
}

const struct backend_ops *kept_plans_ops(void)
{
	static struct backend_ops ops;

	ops = backend_cpu;
	ops.name = "kept plans";
	ops.open = kept_open;
	ops.close = kept_close;
	ops.tile_rows = kept_tile_rows;
	ops.advance = kept_advance;
	ops.prepare = kept_prepare;
	ops.submit = kept_submit;
	return &ops;
}
