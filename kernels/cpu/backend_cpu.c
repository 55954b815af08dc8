/*
 * backend_cpu.c - the backend that computes on the machine's cores: opens the parts and counts.
 *
 * A batch is complete when submit returns. Arena addresses are the host's own.
 */
#include "kernels/backend.h"
#include "append.h"
#include "estimate_pages.h"
#include "job.h"
#include "program.h"
#include "summary.h"
#include "proto/clock.h"
#include "kernels/pool_config.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define USUAL_PART 4 /* of the machine's memory: clients have theirs there, too */

static void cpu_close(struct backend *b)
{
	if (!b)
		return;
	mover_free(b->mover);
	free(b->leg_state);
	free(b->leg_part);
	array_done(&b->masses);
	attend_done(&b->attend);
	threads_free(b->threads);
	pool_done(&b->pool);
	free(b);
}

static int cpu_memory(const char *device, struct backend_memory *ret, char *error,
		      size_t error_bytes)
{
	long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

	(void)device;
	if (pages <= 0 || page_bytes <= 0) {
		say(error, error_bytes, "the machine does not say how much memory it has");
		return -EINVAL;
	}
	*ret = (struct backend_memory){.bytes = (uint64_t)pages * (uint64_t)page_bytes,
				       .common = true};
	ret->usual_bytes = ret->bytes / USUAL_PART;
	return 0;
}

static int open_parts(struct backend *b, const struct backend_config *config, char *error,
		      size_t error_bytes)
{
	int r = pool_init(&b->pool, config->pool_bytes, config->extent_bytes);

	if (r) {
		say(error, error_bytes, "no address space for a pool of %llu bytes",
		    (unsigned long long)config->pool_bytes);
		return r;
	}
	r = threads_new(config->n_threads, &b->threads);
	if (r) {
		say(error, error_bytes, "cannot start %u threads", config->n_threads);
		return r;
	}
	if (b->vec->flushes)
		threads_flush_subnormals(b->threads);
	r = attend_init(&b->attend, b->vec, b->threads);
	if (r)
		say(error, error_bytes, "no memory for %u threads", threads_count(b->threads));
	return r;
}

static int cpu_open(const struct backend_config *config, struct backend **ret, char *error,
		    size_t error_bytes)
{
	const char *isa = getenv("COPPICE_CPU_ISA");
	const struct vec *vec = vec_select(isa);
	const struct rows_ops *rows = vec ? rows_ops_select(vec->name) : NULL;
	int r = pool_config_check(config, error, error_bytes);

	if (r)
		return r;
	if (!rows) {
		say(error, error_bytes,
		    "COPPICE_CPU_ISA=%s: this machine has no such thing; accepted: generic, and "
		    "where it has them avx2, avx512",
		    isa);
		return -EINVAL;
	}

	struct backend *b = calloc(1, sizeof(*b));

	if (!b) {
		say(error, error_bytes, "out of memory");
		return -ENOMEM;
	}
	b->vec = vec;
	b->rows = rows;
	r = open_parts(b, config, error, error_bytes);
	if (r) {
		cpu_close(b);
		return r;
	}
	*ret = b;
	return 0;
}

static uint64_t cpu_page_bytes(struct backend *b, const struct work_shape *shape, char *error,
			       size_t error_bytes)
{
	return pool_page_bytes(&b->pool, shape, error, error_bytes);
}

static int cpu_extent_commit(struct backend *b, uint32_t extent)
{
	return pool_commit(&b->pool, extent);
}

/* Where it is, behind copies that concern it. Batches are done when their submit returns. */
static char *settled_extent(struct backend *b, uint32_t extent)
{
	char *at = b->pool.base + extent * b->pool.extent_bytes;

	if (b->mover)
		mover_await(b->mover, at, b->pool.extent_bytes);
	return at;
}

static void cpu_extent_release(struct backend *b, uint32_t extent)
{
	(void)settled_extent(b, extent);
	pool_release(&b->pool, extent);
}

static int cpu_extent_renew(struct backend *b, uint32_t extent)
{
	assert(extent < b->pool.n_extents && b->pool.committed[extent]);
	memset(settled_extent(b, extent), 0, b->pool.extent_bytes);
	return 0;
}

static int cpu_arena_attach(struct backend *b, void *host, uint64_t bytes, uint64_t *ret_base)
{
	(void)b;
	(void)bytes;
	*ret_base = (uintptr_t)host;
	return 0;
}

static void cpu_arena_detach(struct backend *b, uint64_t base, uint64_t bytes)
{
	(void)b;
	(void)base;
	(void)bytes;
}

static int cpu_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	uint64_t start_ns = clock_now_ns();

	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		if (cpu_page_bytes(b, batch->jobs[i].shape, NULL, 0) == 0)
			return -EINVAL;
		if (attend_reserve(&b->attend, &batch->jobs[i]) != 0)
			return -ENOMEM;
	}
	threads_begin(b->threads);
	for (uint32_t i = 0; i < batch->n_jobs; i++)
		job_run(b, &batch->jobs[i]);
	threads_end(b->threads);
	b->counters.batches++;
	b->counters.busy_ns += clock_now_ns() - start_ns;
	*ret_id = ++b->last_id;
	return 0;
}

static uint64_t cpu_progress(struct backend *b)
{
	return threads_progress(b->threads);
}

static int cpu_estimate(struct backend *b, const struct backend_estimate *estimate,
			const float **ret_mass)
{
	struct pool_pages pages;
	const struct estimator with = {&pages, b->vec, b->threads, &b->masses};

	if (cpu_page_bytes(b, estimate->shape, NULL, 0) == 0)
		return -EINVAL;
	pool_pages_init(&pages, &b->pool, estimate->shape, b->vec);
	return estimate_pages(&with, estimate, ret_mass);
}

static int cpu_completed(struct backend *b, uint64_t *ret_id)
{
	*ret_id = b->last_id;
	return 0;
}

static int cpu_move(struct backend *b, const struct work_shape *shape,
		    const struct backend_move *moves, uint32_t n)
{
	struct pool_pages pages;

	if (cpu_page_bytes(b, shape, NULL, 0) == 0)
		return -EINVAL;
	pool_pages_init(&pages, &b->pool, shape, b->vec);
	for (uint32_t i = 0; i < n; i++) {
		job_await_page(b, &pages, moves[i].to_page);
		append_move(&pages, shape, &moves[i]);
	}
	return 0;
}

static void cpu_counters(struct backend *b, struct backend_counters *ret)
{
	*ret = b->counters;
}

static void cpu_cost(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	double threads = threads_at_once(b->threads);

	*ret = (struct backend_cost){
		.fixed_ns = CPU_FIXED_NS,
		.kv_ns_per_byte = CPU_READ_NS_PER_BYTE / threads,
		.row_ns_per_byte =
			b->vec->fma_ns / (double)work_dtype_bytes(shape->dtype) / threads,
	};
}

static uint32_t cpu_tile_rows(struct backend *b, const struct work_shape *shape)
{
	(void)b;
	(void)shape;
	return FOLD_ROWS;
}

/* Room for the states of all rows, and for those that one leg leaves. */
static int leg_reserve(struct backend *b, size_t n_floats)
{
	if (n_floats <= b->leg_room)
		return 0;
	free(b->leg_state);
	free(b->leg_part);
	b->leg_state = malloc(n_floats * sizeof(float));
	b->leg_part = malloc(n_floats * sizeof(float));
	b->leg_room = b->leg_state && b->leg_part ? n_floats : 0;
	return b->leg_room ? 0 : -ENOMEM;
}

static size_t row_floats(const struct backend_job *job)
{
	return (size_t)job->shape->n_q_heads * (2 + job->shape->head_dim);
}

static int leg_begin(struct backend *b, const struct backend_job *job, uint32_t n_rows)
{
	uint32_t dim = job->shape->head_dim;
	size_t n_entries = (size_t)n_rows * job->shape->n_q_heads;
	int r = leg_reserve(b, row_floats(job) * n_rows);

	for (size_t i = 0; i < n_entries && !r; i++) {
		float *at = b->leg_state + i * (2 + dim);
		struct merge_state empty;

		merge_empty(&empty, at + 2, dim);
		memcpy(at, &empty, sizeof(empty));
	}
	return r;
}

/* The state of a list's row. */
static float *leg_row(const struct backend *b, const struct backend_job *job,
		      const struct backend_leg *leg, uint32_t row)
{
	const struct work_row *at = &job->list->rows[row];
	uint32_t n = leg->first_row + at->token;

	for (uint32_t i = 0; i < at->query; i++)
		n += job->tree->queries[i].n_rows;
	return b->leg_state + row_floats(job) * n;
}

static void leg_write(struct backend *b, const struct backend_job *job, uint32_t row,
		      const float *at)
{
	uint32_t stride = 2 + job->shape->head_dim;

	for (uint32_t head = 0; head < job->shape->n_q_heads; head++, at += stride) {
		struct attend_sums sums = {{at[0], at[1]}, at + 2};
		attend_write(b->vec, job, row, head, &sums);
	}
}

/* Folds what a job has left of its heads. */
static void leg_fold(struct backend *b, const struct backend_job *job,
		     const struct backend_leg *leg)
{
	uint32_t dim = job->shape->head_dim, group = job->shape->n_q_heads / job->shape->n_kv_heads;
	size_t skip = (size_t)job->head * group * (2 + dim);
	size_t n_entries = (size_t)backend_job_heads(job) * group;

	for (uint32_t row = 0; row < job->list->n_rows; row++) {
		const float *from = b->leg_part + row_floats(job) * row;
		float *to = leg_row(b, job, leg, row);

		if (!job->io[job->list->rows[row].query].o)
			continue;
		merge_fold_entries(to + skip, from + skip, n_entries, dim);
		if (leg->last)
			leg_write(b, job, row, to);
	}
}

static int cpu_leg(struct backend *b, const struct backend_batch *batch,
		   const struct backend_leg *leg, uint64_t *ret_id)
{
	size_t n_floats = row_floats(&batch->jobs[0]) * leg->n_rows;
	int r = leg->first ? leg_begin(b, &batch->jobs[0], leg->n_rows) : 0;

	if (!r && n_floats > b->leg_room)
		r = -EINVAL;
	for (uint32_t i = 0; i < batch->n_jobs && !r; i++) {
		struct backend_job part = batch->jobs[i];
		part.parts = (uintptr_t)b->leg_part;
		r = cpu_submit(b, &(struct backend_batch){&part, 1}, ret_id);
		if (!r)
			leg_fold(b, &part, leg);
	}
	return r;
}

static int cpu_summary_make(struct backend *b, const struct work_shape *shape,
			    struct backend_summary **ret)
{
	(void)b;
	return summary_new(shape, ret);
}

static void cpu_summary_free(struct backend *b, struct backend_summary *summary)
{
	(void)b;
	summary_free(summary);
}

static int cpu_summary_add(struct backend *b, struct backend_summary *summary,
			   const struct backend_span *span)
{
	struct pool_pages pages;

	if (cpu_page_bytes(b, span->shape, NULL, 0) == 0)
		return -EINVAL;
	pool_pages_init(&pages, &b->pool, span->shape, b->vec);
	return summary_add(summary, &pages, b->vec, span);
}

static const struct backend_summary_ops summary_ops = {
	.make = cpu_summary_make,
	.free = cpu_summary_free,
	.add = cpu_summary_add,
};

/* Memory need not be pinned for memcpy: the thread for it is all there is to be had. */
static int cpu_pin(struct backend *b, void *host, uint64_t bytes)
{
	(void)host;
	(void)bytes;
	return b->mover || mover_new(&b->mover) == 0 ? 0 : -ENOMEM;
}

static void cpu_unpin(struct backend *b, void *host, uint64_t bytes)
{
	(void)b;
	(void)host;
	(void)bytes;
}

static uint64_t add_copy(struct backend *b, const struct backend_copy *copy, enum mover_way way)
{
	return mover_add(b->mover,
			 &(struct mover_copy){
				 .way = way,
				 .pool = b->pool.base + copy->extent * b->pool.extent_bytes +
					 copy->offset_bytes,
				 .host = copy->host,
				 .bytes = copy->bytes,
			 });
}

static uint64_t cpu_down(struct backend *b, const struct backend_copy *copy)
{
	return add_copy(b, copy, MOVER_DOWN);
}

static uint64_t cpu_up(struct backend *b, const struct backend_copy *copy)
{
	return add_copy(b, copy, MOVER_UP);
}

static uint64_t cpu_downs_done(struct backend *b)
{
	return mover_done(b->mover, MOVER_DOWN);
}

static uint64_t cpu_ups_done(struct backend *b)
{
	return mover_done(b->mover, MOVER_UP);
}

static void cpu_kick(struct backend *b)
{
	(void)b;
}

/* Lines of a page are in the order that the vectors want. */
static uint64_t cpu_layout(struct backend *b)
{
	return UINT64_C(0x63707500) << 8 | b->vec->lanes;
}

static const struct backend_tier_ops cpu_tier = {
	.pin = cpu_pin,
	.unpin = cpu_unpin,
	.down = cpu_down,
	.up = cpu_up,
	.downs_done = cpu_downs_done,
	.ups_done = cpu_ups_done,
	.kick = cpu_kick,
	.leg = cpu_leg,
	.summary = &summary_ops,
	.layout = cpu_layout,
};

const struct backend_ops backend_cpu = {
	.name = "cpu",
	.leaves_parts = true,
	.unseen = CPU_UNSEEN,
	.memory = cpu_memory,
	.open = cpu_open,
	.close = cpu_close,
	.page_bytes = cpu_page_bytes,
	.extent_commit = cpu_extent_commit,
	.extent_release = cpu_extent_release,
	.extent_renew = cpu_extent_renew,
	.arena_attach = cpu_arena_attach,
	.arena_detach = cpu_arena_detach,
	.submit = cpu_submit,
	.progress = cpu_progress,
	.estimate = cpu_estimate,
	.completed = cpu_completed,
	.move = cpu_move,
	.counters = cpu_counters,
	.cost = cpu_cost,
	.tile_rows = cpu_tile_rows,
	.tier = &cpu_tier,
	.program = &cpu_program,
};
