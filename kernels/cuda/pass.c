/* pass.c - see pass.h. */
#include "pass.h"

#include "tier.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where in the memory what lies. */
struct room {
	uint64_t row; /* of Q and O */
	uint64_t state_row, lse_row;
	uint64_t q, o, lse, end;
};

static struct room room_of(const struct work_shape *shape, uint32_t n_rows)
{
	struct room r = {.row = (uint64_t)shape->n_q_heads * shape->head_dim * 2,
			 .state_row = (uint64_t)shape->n_q_heads * (shape->head_dim + 2) * 4,
			 .lse_row = (uint64_t)shape->n_q_heads * 4};

	r.q = (r.state_row * n_rows + 255) / 256 * 256;
	r.o = r.q + r.row * n_rows;
	r.lse = r.o + r.row * n_rows;
	r.end = r.lse + r.lse_row * n_rows;
	return r;
}

void pass_done(struct pass *p)
{
	if (p->end)
		cudaEventDestroy(p->end);
	cudaFree(p->at);
	free(p->io);
	free(p->there);
	free(p->jobs);
	memset(p, 0, sizeof(*p));
}

static int memory_reserve(struct pass *p, struct batch *b, uint64_t bytes)
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
	cudaStreamSynchronize(b->stream);
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

/* The query's Q comes to the device before the first pass that has it, so that attention never reads it over the bus. */
static bool query_place(struct pass *p, struct batch *b, const struct backend_io *from,
			const struct room *room, uint32_t row, uint32_t n_rows,
			struct backend_io *ret)
{
	char *q = p->at + room->q + row * room->row;
	bool there = p->there[row];

	ret->q = (uintptr_t)q;
	ret->o = (uintptr_t)p->at + room->o + row * room->row;
	ret->lse = (uintptr_t)p->at + room->lse + row * room->lse_row;
	ret->q_stride = ret->o_stride = room->row;
	ret->lse_stride = room->lse_row;
	p->there[row] = true;
	return there ||
	       cudaMemcpy2DAsync(q, room->row, (const void *)(uintptr_t)from->q, from->q_stride,
				 room->row, n_rows, cudaMemcpyDefault, b->stream) == cudaSuccess;
}

int pass_bring(struct pass *p, struct batch *b, const struct backend_estimate *e, uint64_t *ret_q)
{
	struct room room = room_of(e->shape, e->n_q);
	int r = memory_reserve(p, b, room.end);

	if (r)
		return r;
	*ret_q = (uintptr_t)p->at + room.q;
	p->ahead = e->rows_id;
	p->ahead_rows = e->n_q;
	if (cudaMemcpy2DAsync(p->at + room.q, room.row, (const void *)(uintptr_t)e->q, e->q_stride,
			      room.row, e->n_q, cudaMemcpyDefault, b->stream) == cudaSuccess)
		return 0;
	b->failed = true;
	return -EIO;
}

/* Nothing is known of any row, but Q may be there. */
static int rows_begin(struct pass *p, struct batch *b, const struct room *room,
		      const struct backend_pass *pass)
{
	uint32_t n_rows = pass->n_rows;
	int r = reserve((void **)&p->there, &p->there_room, n_rows, sizeof(*p->there));

	if (!r)
		r = memory_reserve(p, b, room->end);
	if (r)
		return r;
	memset(p->there, 0, n_rows * sizeof(*p->there));
	p->there[0] = pass->rows_id && pass->rows_id == p->ahead && n_rows == p->ahead_rows;
	p->ahead = 0;
	return cudaMemsetAsync(p->at, 0, room->q, b->stream) == cudaSuccess ? 0 : -EIO;
}

/* All jobs read Q from here, and leave O and LSE here. */
static int jobs_make(struct pass *p, const struct backend_batch *batch)
{
	int r = reserve((void **)&p->jobs, &p->jobs_room, batch->n_jobs, sizeof(*p->jobs));

	for (uint32_t i = 0; i < batch->n_jobs && !r; i++) {
		p->jobs[i] = batch->jobs[i];
		p->jobs[i].io = p->io;
	}
	return r;
}

int pass_begin(struct pass *p, struct batch *b, const struct backend_batch *batch,
	       const struct backend_pass *pass, const struct backend_job **ret)
{
	const struct backend_job *job = &batch->jobs[0];
	struct room room = room_of(job->shape, pass->n_rows);
	uint32_t n = job->tree->n_queries, row = pass->first_row;
	int r = reserve((void **)&p->io, &p->io_room, n, sizeof(*p->io));

	if (!r)
		r = jobs_make(p, batch);
	if (!r && pass->first)
		r = rows_begin(p, b, &room, pass);
	if (!r && (room.end > p->bytes || pass->n_rows > p->there_room))
		r = -EINVAL;
	for (uint32_t i = 0; i < n && !r; i++) {
		uint32_t n_rows = job->tree->queries[i].n_rows;

		p->io[i] = job->io[i];
		if (job->io[i].o && !query_place(p, b, &job->io[i], &room, row, n_rows, &p->io[i]))
			r = -EIO;
		row += n_rows;
	}
	*ret = p->jobs;
	b->failed = b->failed || r == -EIO;
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

static bool query_fold(struct pass *p, struct batch *b, const struct backend_batch *batch,
		       const struct room *room, uint32_t query, uint32_t row, bool last)
{
	const struct backend_job *job = &batch->jobs[0];
	const struct backend_io *io = &job->io[query];
	const struct device_fold fold = {
		.state = (float *)(void *)(p->at + row * room->state_row),
		.part_o = p->at + room->o + row * room->row,
		.part_lse = (const float *)(void *)(p->at + room->lse + row * room->lse_row),
		.o = io->o,
		.lse = io->lse,
		.o_stride = io->o_stride,
		.lse_stride = io->lse_stride,
		.heads = job->n_heads ? heads_of(batch) : UINT64_MAX,
		.n_rows = job->tree->queries[query].n_rows,
		.n_heads = job->shape->n_q_heads,
		.group = job->shape->n_q_heads / job->shape->n_kv_heads,
		.head_dim = job->shape->head_dim,
		.bf16 = job->shape->dtype == WORK_BF16,
		.last = last,
	};

	return !io->o || device_fold(&fold, b->stream) == 0;
}

int pass_end(struct pass *p, struct batch *b, const struct backend_batch *batch,
	     const struct backend_pass *pass, uint64_t id)
{
	const struct backend_job *job = &batch->jobs[0];
	struct room room = room_of(job->shape, pass->n_rows);
	uint32_t row = pass->first_row;
	bool well = true;

	for (uint32_t i = 0; i < job->tree->n_queries && well; i++) {
		well = query_fold(p, b, batch, &room, i, row, pass->last);
		row += job->tree->queries[i].n_rows;
	}
	if (well && pass->last)
		well = cudaEventRecord(p->end, b->stream) == cudaSuccess;
	p->id = pass->last ? id : 0;
	b->failed = b->failed || !well;
	return well ? 0 : -EIO;
}

void pass_completed(struct pass *p, uint64_t *id)
{
	if (p->id == 0 || *id < p->id)
		return;
	if (cudaEventQuery(p->end) == cudaErrorNotReady)
		*id = p->id - 1;
	else
		p->id = 0;
}
