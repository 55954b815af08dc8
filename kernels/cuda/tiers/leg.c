/*
 * leg.c - attention in legs; see leg.h. One piece of device memory has all of it: it is
 * replaced only before the first leg of a path, when nothing of it is wanted any more. A row's Q
 * is brought once, by the first leg that has the row.
 */
#include "leg.h"

#include "kernels/cuda/device/bring.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_BYTES (UINT64_C(256) << 20) /* of O, unless one leg's is more */

/* Where in the memory what lies. */
struct room {
	uint64_t row; /* of Q and O */
	uint64_t state_row, lse_row;
	uint64_t o_bytes, lse_bytes; /* of a part */
	uint32_t n_parts;
	uint64_t q, o, lse, end;
};

/* Each is folded at once where there was no memory for more. */
static uint32_t parts_of(const struct leg *p, uint64_t o_bytes)
{
	uint64_t n = p->sparing ? 1 : PARTS_BYTES / o_bytes;

	return n < 1 ? 1 : n > FOLD_PARTS ? FOLD_PARTS : (uint32_t)n;
}

static struct room room_of(const struct leg *p, const struct work_shape *shape, uint32_t n_rows)
{
	struct room r = {.row = (uint64_t)shape->n_q_heads * shape->head_dim * 2,
			 .state_row = (uint64_t)shape->n_q_heads * (shape->head_dim + 1) * 4,
			 .lse_row = (uint64_t)shape->n_q_heads * 4};

	r.o_bytes = r.row * n_rows;
	r.lse_bytes = r.lse_row * n_rows;
	r.n_parts = parts_of(p, r.o_bytes);
	r.q = align_to(r.state_row * n_rows, 256);
	r.o = r.q + r.row * n_rows;
	r.lse = r.o + r.n_parts * r.o_bytes;
	r.end = r.lse + r.n_parts * r.lse_bytes;
	return r;
}

void leg_done(struct leg *p)
{
	if (p->end)
		cudaEventDestroy(p->end);
	cudaFree(p->at);
	free(p->io);
	free(p->there);
	free(p->jobs);
	memset(p, 0, sizeof(*p));
}

static int memory_reserve(struct leg *p, struct queue *q, uint64_t bytes)
{
	cudaEvent_t event;
	void *at;

	if (!p->end) {
		if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess)
			return -ENOMEM;
		p->end = event;
	}
	if (bytes <= p->bytes)
		return 0;
	cudaStreamSynchronize(q->stream);
	cudaFree(p->at);
	p->at = NULL;
	p->bytes = 0;
	if (cudaMalloc(&at, bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	p->at = at;
	p->bytes = bytes;
	return 0;
}

static int room_reserve(struct leg *p, struct queue *q, const struct work_shape *shape,
			uint32_t n_rows, struct room *ret)
{
	int r;

	*ret = room_of(p, shape, n_rows);
	r = memory_reserve(p, q, ret->end);
	if (r != -ENOMEM || p->sparing)
		return r;
	p->sparing = true;
	*ret = room_of(p, shape, n_rows);
	return memory_reserve(p, q, ret->end);
}

static int reserve(void **at, uint32_t *room, uint32_t n, size_t bytes)
{
	void *more;

	if (n <= *room)
		return 0;
	more = realloc(*at, n * bytes);
	if (!more)
		return -ENOMEM;
	*at = more;
	*room = n;
	return 0;
}

/* Where a query's Q is, and this leg's part of its O and LSE goes; of its first row. */
static void query_place(const struct leg *p, const struct room *room, uint32_t row,
			struct backend_io *ret)
{
	uintptr_t at = (uintptr_t)p->at;

	ret->q = at + room->q + row * room->row;
	ret->o = at + room->o + p->n_parts * room->o_bytes + row * room->row;
	ret->lse = at + room->lse + p->n_parts * room->lse_bytes + row * room->lse_row;
	ret->q_stride = ret->o_stride = room->row;
	ret->lse_stride = room->lse_row;
}

/* Query i's Q, of its rows from the given one on, comes to the device before the first leg that has
 * it, so that attention never reads it over the bus. */
static bool query_bring(struct leg *p, struct queue *q, const struct backend_job *job, uint32_t i,
			uint32_t row)
{
	const struct backend_io *from = &job->io[i], *to = &p->io[i];
	const struct device_bring copy = {.from = from->q,
					  .to = to->q,
					  .from_stride = from->q_stride,
					  .to_stride = to->q_stride,
					  .row_bytes = to->q_stride,
					  .n_rows = job->tree->queries[i].n_rows};
	bool there = p->there[row];

	p->there[row] = true;
	return there || device_bring(&copy, q->stream) == cudaSuccess;
}

int leg_bring(struct leg *p, struct queue *q, const struct backend_estimate *e, uint64_t *ret_q)
{
	struct room room;
	int r = room_reserve(p, q, e->shape, e->n_q, &room);

	if (r)
		return r;
	const struct device_bring copy = {.from = e->q,
					  .to = (uintptr_t)p->at + room.q,
					  .from_stride = e->q_stride,
					  .to_stride = room.row,
					  .row_bytes = room.row,
					  .n_rows = e->n_q};

	*ret_q = copy.to;
	p->ahead = e->rows_id;
	p->ahead_rows = e->n_q;
	if (device_bring(&copy, q->stream) == cudaSuccess)
		return 0;
	q->failed = true;
	return -EIO;
}

/* Nothing is known of any row, but Q may be there. */
static int rows_begin(struct leg *p, struct queue *q, const struct work_shape *shape,
		      const struct backend_leg *leg, struct room *ret)
{
	uint32_t n_rows = leg->n_rows;
	int r = reserve((void **)&p->there, &p->there_room, n_rows, sizeof(*p->there));

	if (!r)
		r = room_reserve(p, q, shape, leg->n_rows, ret);
	if (r)
		return r;
	memset(p->there, 0, n_rows * sizeof(*p->there));
	p->there[0] = leg->rows_id && leg->rows_id == p->ahead && n_rows == p->ahead_rows;
	p->ahead = 0;
	p->n_parts = 0;
	p->had = false;
	return 0;
}

/* All jobs read Q from here, and leave O and LSE here. */
static int jobs_make(struct leg *p, const struct backend_batch *batch)
{
	int r = reserve((void **)&p->jobs, &p->jobs_room, batch->n_jobs, sizeof(*p->jobs));

	for (uint32_t i = 0; i < batch->n_jobs && !r; i++) {
		p->jobs[i] = batch->jobs[i];
		p->jobs[i].io = p->io;
	}
	return r;
}

int leg_begin(struct leg *p, struct queue *q, const struct backend_batch *batch,
	      const struct backend_leg *leg, const struct backend_job **ret)
{
	const struct backend_job *job = &batch->jobs[0];
	struct room room = room_of(p, job->shape, leg->n_rows);
	uint32_t n = job->tree->n_queries, row = leg->first_row;
	int r = reserve((void **)&p->io, &p->io_room, n, sizeof(*p->io));

	if (!r)
		r = jobs_make(p, batch);
	if (!r && leg->first)
		r = rows_begin(p, q, job->shape, leg, &room);
	if (!r && (room.end > p->bytes || leg->n_rows > p->there_room))
		r = -EINVAL;
	for (uint32_t i = 0; i < n && !r; i++) {
		p->io[i] = job->io[i];
		if (job->io[i].o) {
			query_place(p, &room, row, &p->io[i]);
			if (!query_bring(p, q, job, i, row))
				r = -EIO;
		}
		row += job->tree->queries[i].n_rows;
	}
	*ret = p->jobs;
	q->failed = q->failed || r == -EIO;
	return r;
}

/* KV heads that a job has. */
static uint64_t heads_of(const struct backend_batch *batch)
{
	uint64_t heads = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		uint32_t n = backend_job_heads(&batch->jobs[i]);

		heads |= (n < 64 ? (UINT64_C(1) << n) - 1 : UINT64_MAX) << batch->jobs[i].head;
	}
	return heads;
}

/* Of all rows; io == NULL: into their states, else of those of a query, which go where it wants
 * them. */
static struct device_fold fold_of(const struct leg *p, const struct backend_job *job,
				  const struct room *room, const struct backend_io *io)
{
	struct device_fold fold = {
		.state = (float *)(void *)p->at,
		.part_o = p->at + room->o,
		.part_lse = p->at + room->lse,
		.o_bytes = room->o_bytes,
		.lse_bytes = room->lse_bytes,
		.n_parts = p->n_parts,
		.n_heads = job->shape->n_q_heads,
		.group = job->shape->n_q_heads / job->shape->n_kv_heads,
		.head_dim = job->shape->head_dim,
		.bf16 = job->shape->dtype == WORK_BF16,
		.last = io != NULL,
		.had = p->had,
	};

	memcpy(fold.parts, p->parts, sizeof(fold.parts));
	if (io) {
		fold.o = io->o;
		fold.lse = io->lse;
		fold.o_stride = io->o_stride;
		fold.lse_stride = io->lse_stride;
	}
	return fold;
}

static bool fold_on(struct leg *p, struct queue *q, const struct backend_job *job,
		    const struct room *room, uint32_t n_rows)
{
	struct device_fold fold = fold_of(p, job, room, NULL);

	fold.n_rows = n_rows;
	p->n_parts = 0;
	p->had = true;
	return device_fold(&fold, q->stream) == 0;
}

static bool fold_out(struct leg *p, struct queue *q, const struct backend_job *job,
		     const struct room *room, uint32_t first_row)
{
	uint32_t row = first_row;
	bool well = true;

	for (uint32_t i = 0; i < job->tree->n_queries && well; i++) {
		struct device_fold fold = fold_of(p, job, room, &job->io[i]);

		fold.first_row = row;
		fold.n_rows = job->tree->queries[i].n_rows;
		row += fold.n_rows;
		well = !job->io[i].o || device_fold(&fold, q->stream) == 0;
	}
	return well && cudaEventRecord(p->end, q->stream) == cudaSuccess;
}

int leg_end(struct leg *p, struct queue *q, const struct backend_batch *batch,
	    const struct backend_leg *leg, uint64_t id)
{
	const struct backend_job *job = &batch->jobs[0];
	struct room room = room_of(p, job->shape, leg->n_rows);
	bool well = true;

	p->parts[p->n_parts++] = (struct device_part){
		.heads = job->n_heads ? heads_of(batch) : UINT64_MAX,
		.begin = leg->first_row,
		.end = leg->first_row + job->list->n_rows,
	};
	if (leg->last)
		well = fold_out(p, q, job, &room, leg->first_row);
	else if (p->n_parts == room.n_parts)
		well = fold_on(p, q, job, &room, leg->n_rows);
	p->id = leg->last ? id : 0;
	q->failed = q->failed || !well;
	return well ? 0 : -EIO;
}

void leg_completed(struct leg *p, uint64_t *id)
{
	if (p->id == 0 || *id < p->id)
		return;
	if (cudaEventQuery(p->end) == cudaErrorNotReady)
		*id = p->id - 1;
	else
		p->id = 0;
}
