/*
 * batch_impl.h - between the parts of a batch's way: what shapes come to (batch_shape.c), buffers
 * (batch_memory.c), plans that are kept (batch_plans.c), tables that go up with a batch
 * (batch_tables.c), and the batch itself (batch.c).
 */
#ifndef COPPICE_CUDA_BATCH_IMPL_H
#define COPPICE_CUDA_BATCH_IMPL_H

#include "batch.h"

#include <time.h>

#define BATCH_ALIGN 256u /* of tables and of a program's arrays */
#define DEVICE_GRANULE (UINT64_C(2) << 20) /* what the driver gives device memory in */

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
	uint64_t rows_to, q_to,
		/* in device memory; of rows that are exchanged, where they go is behind the rows */
		o_to;
	uint64_t lse_to; /* 0: not staged */
	bool patched; /* the plan, by what comes before attention */
};

static inline size_t align_up(size_t n)
{
	return (n + BATCH_ALIGN - 1) / BATCH_ALIGN * BATCH_ALIGN;
}

/* What a buffer on the device is given for so much: some more, as it may grow, but nothing
 * large. */
static inline size_t device_room(size_t bytes)
{
	size_t room = bytes + bytes / 2;

	if (room <= DEVICE_GRANULE / 2)
		return room;
	return (bytes + DEVICE_GRANULE - 1) / DEVICE_GRANULE * DEVICE_GRANULE;
}

/* How many of `of` each n takes, the last one perhaps in part. */
static inline uint32_t n_of(uint32_t n, uint32_t of)
{
	return n / of + (n % of > 0);
}

/* Of a row of Q or O. */
static inline size_t shape_row_bytes(const struct work_shape *shape)
{
	return (size_t)shape->n_q_heads * shape->head_dim * 2;
}

/* Of the query heads of one KV head in it. */
static inline size_t shape_group_bytes(const struct work_shape *shape)
{
	return shape_row_bytes(shape) / shape->n_kv_heads;
}

static inline uint64_t batch_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* ---- batch_memory.c ------------------------------------------------------------------------- */

/* The first that went wrong is remembered. 0 or -EIO. */
int batch_expect(struct batch *b, int r);
/* For all that the stream has to do; no longer than b->patience_ns, if that is not 0: then the
 * batch has failed, and is not waited for again. 0 or -EIO. */
int batch_await(struct batch *b);
/* False: the stream is still at it when the time is over. */
bool batch_settles(const struct batch *b, uint64_t limit_ns);
/* Grows a buffer, whose contents are lost; waits for what may be using the old one. 0, -ENOMEM,
 * -EIO. */
int batch_grow(struct batch *b, struct batch_buffer *buffer, size_t bytes, bool host);

/* ---- batch_shape.c: of a shape that batch_page_bytes takes ---------------------------------- */

struct program_pages shape_pages(const struct batch *b, const struct work_shape *shape);
/* Where the group of a page's row lies. */
uint32_t shape_source(const struct work_shape *shape, const struct program_pages *pages,
		      uint32_t page, uint32_t row);
/* Of a page of one KV head. */
uint64_t shape_head_bytes(const struct work_shape *shape);
/* As kernels are told of it. */
struct device_shape shape_on_device(const struct work_shape *shape);

/* ---- batch_plans.c -------------------------------------------------------------------------- */

/* NULL: not kept (any more). */
struct batch_plan *plan_find(struct batch *b, uint64_t plan_id, const struct work_shape *shape);
/* What the planner is to be told of all rows. */
struct program_want plan_want(const struct batch *b, const struct backend_job *job,
			      uint32_t n_blocks);
/* What advancing needs outlives the program. 0 or -ENOMEM. */
int plan_keep_tails(struct batch_plan *plan, const struct program *p, uint32_t n_rows);
/* Makes a program in b->program, or takes one that was made ahead, and a plan that has room for it,
 * in the place of one that is needed least; others may go, as BATCH_PLANS_BYTES says. wanted
 * [queries] says whose output is wanted; NULL: all. 0, -ENOMEM, -EIO. */
int plan_prepare(struct batch *b, const struct backend_job *job, const bool *wanted,
		 struct batch_plan **ret);
/* Of the program's arrays, one behind the other at multiples of BATCH_ALIGN. */
size_t plan_bytes(const struct program *p);
void plan_drop_tails(struct batch_plan *plan);

/* ---- batch_ahead.c -------------------------------------------------------------------------- */

/* What was prepared for the job's plan; the batch's until it asks for another. NULL: nothing
 * was. */
struct batch_ahead *ahead_find(struct batch *b, const struct backend_job *job);
/* Its program in exchange for another, and its tails: nothing is left of it. */
void ahead_take_program(struct batch_ahead *ahead, struct program *program);
void ahead_take_tails(struct batch_ahead *ahead, struct batch_plan *plan);
void ahead_done(struct batch *b);

/* ---- batch_tables.c ------------------------------------------------------------------------- */

struct batch_need tables_need(struct batch *b, const struct backend_job *job);
/* Adds the pinned and device memory that the job's tables take at most, programs and patches
 * apart. */
void tables_count(const struct backend_job *job, const struct batch_need *need, size_t *host_bytes,
		  size_t *device_bytes);
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
/* Is it the host's? */
bool batch_in_host(struct batch *b, uint64_t address);
/* Pinned host memory to the device's or back, on the batch's stream and behind nothing else
 * (bring.h). 0 or -EIO. */
int batch_bring(struct batch *b, void *to, const void *from, size_t bytes);

#endif
