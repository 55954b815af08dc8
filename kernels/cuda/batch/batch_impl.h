/*
 * batch_impl.h - between the parts of a batch's way, from low to high: one plan (batch_plan.c),
 * plans made ahead (batch_ahead.c), schedules found again (schedule_cache.c), plans that are kept
 * (batch_plans.c), tables that go up with a batch (batch_tables.c), jobs of chosen blocks, launches
 * that stand, and the batch itself (batch.c).
 */
#ifndef COPPICE_CUDA_BATCH_IMPL_H
#define COPPICE_CUDA_BATCH_IMPL_H

#include "batch.h"
#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/cuda/device/row_map.h"
#include "kernels/cuda/device/shape.h"

#define BATCH_ALIGN 256u /* of tables and of a schedule's arrays */

/* A frame being filled: tables in pinned memory, which kernels read or copy, and device memory
 * beside them. */
struct upload {
	struct batch *b;
	struct batch_frame *frame;
	size_t host_used, device_used;
	size_t host_due; /* of tables to come */
	const struct batch_plan *plan; /* of the last job that attended under one; NULL: none did */
	bool begun; /* something has been launched that says when the batch began */
};

/* What attention cannot work on where it lies. */
struct placement {
	bool stage_q; /* across the bus, or at odd addresses */
	bool stage_o; /* at odd addresses */
	bool met; /* devices exchange the rows: Q, O and LSE are staged on each */
	bool aligned_kv;
};

/* What a job needs beside its plan: found once, as it takes a look at every query. */
struct batch_need {
	struct placement place;
	uint32_t n_tokens; /* new ones */
	uint32_t n_wanted; /* queries whose output is wanted */
};

/* A job's tables: rows in pinned memory, and copies of what is staged. */
struct tables {
	struct device_row *rows;
	struct device_copy *q, *o; /* NULL: not staged */
	/* in device memory; of rows that are exchanged, where they go is behind the rows */
	uint64_t rows_to, q_to, o_to;
	uint64_t lse_to; /* 0: not staged */
	bool patched; /* the plan, by what comes before attention */
};

static inline size_t align_up(size_t n)
{
	return align_to(n, BATCH_ALIGN);
}

/* Rows of a schedule that a job's are. */
static inline uint32_t job_n_rows(const struct backend_job *job)
{
	return job->list->n_rows * row_map_of(job->shape).n;
}

/* ---- batch_plan.c: one plan, on the device or before ---------------------------------------- */

/* What the planner is to be told of all rows. */
struct schedule_want plan_want(const struct batch *b, const struct backend_job *job,
			       uint32_t n_blocks);
/* What advancing needs outlives the schedule. 0 or -ENOMEM. */
MUST_CHECK int plan_keep_tails(struct batch_plan *plan, const struct schedule *p, uint32_t n_rows);
/* Of the schedule's arrays, one behind the other at multiples of BATCH_ALIGN. */
size_t plan_bytes(const struct schedule *p);
void plan_drop_tails(struct batch_plan *plan);
/* Tells the plan where its arrays are. */
void plan_place(struct batch_plan *plan, const struct schedule *p);

/* ---- batch_ahead.c -------------------------------------------------------------------------- */

/* What was prepared for the job's plan; the batch's until it asks for another. NULL: nothing
 * was. */
struct batch_ahead *ahead_find(struct batch *b, const struct backend_job *job);
/* Its schedule in exchange for another, and its tails: nothing is left of it. */
void ahead_take_schedule(struct batch_ahead *ahead, struct schedule *schedule);
void ahead_take_tails(struct batch_ahead *ahead, struct batch_plan *plan);
void ahead_done(struct batch *b);

/* ---- batch_plans.c -------------------------------------------------------------------------- */

/* NULL: not kept (any more). */
struct batch_plan *plan_find(struct batch *b, uint64_t plan_id, const struct work_shape *shape);
/* A plan for the job and the schedule that the device is to get for it, made now or ahead, or kept;
 * *ret_schedule NULL: the device has it. The plan has room for it, in the place of one that is
 * needed least; others may go, as BATCH_PLANS_BYTES says. wanted [queries] says whose output is
 * wanted; NULL: all. 0, -ENOMEM, -EIO. */
MUST_CHECK int plan_prepare(struct batch *b, const struct backend_job *job, const bool *wanted,
			    struct batch_plan **ret, const struct schedule **ret_schedule);
/* A job of the batch at hand runs by it. */
void plan_use(struct batch *b, struct batch_plan *plan);
/* The device has nothing of it that is of use to anyone. */
void plan_forget(struct batch_plan *plan);

/* ---- batch_tables.c ------------------------------------------------------------------------- */

struct batch_need tables_need(struct batch *b, const struct backend_job *job);
/* Adds the pinned and device memory that the job's tables take at most, schedules and patches
 * apart. */
void tables_count(const struct backend_job *job, const struct batch_need *need, size_t *host_bytes,
		  size_t *device_bytes);
/* The frame's pinned memory has room for so many bytes. While nothing of it is used it may be that
 * of a frame whose batch is done: pinning waits for all that runs, and takes a millisecond for
 * 3 MiB. 0, -ENOMEM, -EIO. */
MUST_CHECK int upload_grow(struct upload *u, size_t bytes);
/* The next bytes of the frame's pinned memory, which has room for them. */
void *upload_host(struct upload *u, size_t bytes);
void tables_make(struct upload *u, const struct backend_job *job, const struct placement *place,
		 struct tables *ret);
/* Where the n copies of Q lie as far apart as the first two, in says so. */
void tables_describe_copies(const struct tables *t, uint32_t n, struct device_inbound *in);
void tables_fill_tokens(const struct batch *b, const struct backend_job *job,
			struct device_token *at);
/* The plan's patches, in pinned memory; from here on the device has them. plan == NULL: none. */
const struct device_patch *tables_take_patches(struct upload *u, struct batch_plan *plan,
					       uint32_t *ret_n);

/* ---- batch_job.c ---------------------------------------------------------------------------- */

/* Of what is launched: 0 or -EIO. */
MUST_CHECK int batch_launch(struct batch *b, const struct layer *layer);
/* Launches that are to be a chain. finish: NULL, or the batch's, of its last job. 0, -ENOMEM, -EIO,
 * -ESTALE. */
MUST_CHECK int job_run(struct upload *u, const struct backend_job *job,
		       const struct batch_need *need, const struct device_finish *finish);
/* The same of one that a launch stands for, which has all but the tables. */
void job_call(struct upload *u, const struct backend_job *job, const struct batch_need *need);
/* What a job is launched by, with all of its rows wanted, no blocks chosen and nothing staged: its
 * plan is there, or on its way. Errors as job_run. */
MUST_CHECK int job_ready(struct upload *u, const struct backend_job *job,
			 const struct batch_need *need, struct device_inbound *ret_in,
			 struct device_attend *ret_attend);
/* A layer of it. */
void job_count(struct batch *b, const struct backend_job *job, const struct batch_plan *plan);

/* ---- batch.c: of a batch that is being made, in this order ---------------------------------- */

/* 0, -EINVAL, -EIO. */
MUST_CHECK int batch_check(struct batch *b, const struct backend_batch *batch);
/* What its jobs need, into b->needs, and the memory that their tables take. 0 or -ENOMEM. */
MUST_CHECK int batch_find_needs(struct batch *b, const struct backend_batch *batch,
				size_t *ret_host, size_t *ret_device);
/* The next frame, with so much memory; waits for what was in it. 0, -ENOMEM, -EIO. */
MUST_CHECK int batch_take_frame(struct batch *b, size_t host, size_t device, struct upload *ret);
/* Before it is called or launched. */
void batch_put_tells(struct batch *b, const struct backend_batch *batch, uint64_t id);
/* Its last launch. 0 or -EIO. */
MUST_CHECK int batch_finish(struct batch *b, uint64_t id);
/* It is on its way: its id. */
uint64_t batch_keep(struct upload *u);

#endif
