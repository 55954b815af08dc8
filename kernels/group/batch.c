/* batch.c - see batch.h. */
#include "batch.h"

#include "../cpu/attend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAGE_BYTES 4096u

struct cut_stripe batch_stripe(struct backend *b, const struct work_shape *shape)
{
	uint64_t page_bytes = b->ops->page_bytes(b->devices[0].backend, shape, NULL, 0);

	return (struct cut_stripe){(uint32_t)(b->extent_bytes / page_bytes), b->n_devices};
}

/* ---- a batch, on a device's thread --------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

__attribute__((format(printf, 3, 4))) static int device_fail(struct device *d, int r,
							     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	return r;
}

static int device_local(struct backend *b, struct device *d)
{
	struct backend_batch batch = {d->share.jobs, b->batch->n_jobs};
	uint64_t deadline_ns = now_ns() + b->timeout_ms * UINT64_C(1000000), id, done = 0;
	int r = b->ops->submit(d->backend, &batch, &id);

	if (r)
		return device_fail(d, r, "its share was refused: %s", strerror(-r));
	while (done < id && r == 0) {
		r = b->ops->completed(d->backend, &done);
		if (r)
			return device_fail(d, r, "it failed: %s", strerror(-r));
		if (done < id && now_ns() > deadline_ns)
			return device_fail(d, -ETIMEDOUT, "it has not answered for %u ms",
					   b->timeout_ms);
	}
	return 0;
}

static void write_rows(const struct backend *b, uint32_t device, const struct backend_job *job,
		       const struct exchange_rows *rows)
{
	size_t n = 2 + (size_t)rows->head_dim;

	for (uint32_t row = 0; row < rows->n_rows; row++) {
		const float *at = rows->folded + row * exchange_row_floats(rows);

		for (uint32_t head = 0; rows->owner[row] == device && head < rows->n_heads;
		     head++, at += n)
			attend_write(b->vec, job, row, head, (const struct merge_state *)at,
				     at + 2);
	}
}

static int device_exchange(struct backend *b, struct device *d)
{
	const float *parts = d->parts.host;
	const uint32_t *owner = b->owner.data;

	for (uint32_t i = 0; i < b->batch->n_jobs; i++) {
		const struct backend_job *job = &b->batch->jobs[i];
		struct exchange_rows rows = {.parts = parts,
					     .folded = d->folded,
					     .owner = owner,
					     .n_rows = job->list->n_rows,
					     .n_heads = job->shape->n_q_heads,
					     .head_dim = job->shape->head_dim};
		int r = exchange_run(d->exchange, &rows);

		if (r)
			return device_fail(d, r, "exchange: %s", d->exchange->error);
		write_rows(b, d->share.device, job, &rows);
		parts += rows.n_rows * exchange_row_floats(&rows);
		owner += rows.n_rows;
	}
	return 0;
}

static void run_device(void *arg, uint32_t thread, uint32_t unit)
{
	struct backend *b = arg;
	struct device *d = &b->devices[unit];
	uint64_t start_ns = now_ns(), local_ns;

	(void)thread;
	d->result = device_local(b, d);
	d->own_fault = d->result != 0;
	local_ns = now_ns();
	d->stats.local_ns += local_ns - start_ns;
	if (!b->tokens)
		return;
	if (d->result)
		exchange_abort(d->exchange);
	else
		d->result = device_exchange(b, d);
	d->stats.exchange_ns += now_ns() - local_ns;
}

/* ---- before and after ------------------------------------------------------------------------------------------------------- */

/* Partials that the device can reach; zero, as rows that nobody wants stay unwritten. */
static int reserve_parts(struct backend *b, struct device *d, size_t bytes)
{
	struct parts more = {.bytes = (bytes + bytes / 2 + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES};

	if (bytes <= d->parts.bytes)
		return 0;
	if (posix_memalign((void **)&more.host, PAGE_BYTES, more.bytes) != 0)
		return -ENOMEM;
	memset(more.host, 0, more.bytes);
	if (b->ops->arena_attach(d->backend, more.host, more.bytes, &more.base) != 0) {
		free(more.host);
		return -ENOMEM;
	}
	if (d->parts.base)
		b->ops->arena_detach(d->backend, d->parts.base, d->parts.bytes);
	free(d->parts.host);
	d->parts = more;
	return 0;
}

static int reserve_folded(struct device *d, size_t bytes)
{
	float *more;

	if (bytes <= d->folded_bytes)
		return 0;
	more = malloc(bytes);
	if (!more)
		return -ENOMEM;
	free(d->folded);
	d->folded = more;
	d->folded_bytes = bytes;
	return 0;
}

/* Rows to devices in equal runs. */
static int make_owners(struct backend *b, const struct backend_batch *batch)
{
	uint32_t *owner;
	size_t n = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++)
		n += batch->jobs[i].list->n_rows;
	owner = array_room(&b->owner, n, sizeof(*owner));
	if (!owner)
		return -ENOMEM;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		uint32_t n_rows = batch->jobs[i].list->n_rows;

		for (uint32_t row = 0; row < n_rows; row++)
			*owner++ = (uint32_t)((uint64_t)row * b->n_devices / n_rows);
	}
	return 0;
}

static int prepare_tokens(struct backend *b, struct device *d, const struct backend_batch *batch)
{
	size_t all = 0, most = 0, at = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		size_t bytes = group_parts_bytes(batch->jobs[i].shape, batch->jobs[i].list->n_rows);

		all += bytes;
		most = bytes > most ? bytes : most;
	}
	if (reserve_parts(b, d, all) != 0 || reserve_folded(d, most) != 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];
		struct cut_stripe stripe = batch_stripe(b, job->shape);

		if (share_tokens(&d->share, i, job, &stripe, d->parts.base + at) != 0)
			return -ENOMEM;
		at += group_parts_bytes(job->shape, job->list->n_rows);
	}
	return 0;
}

static int prepare_heads(struct device *d, const struct backend_batch *batch)
{
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		if (share_heads(&d->share, i, &batch->jobs[i]) != 0)
			return -ENOMEM;
	}
	return 0;
}

int batch_prepare(struct backend *b, const struct backend_batch *batch)
{
	int r = 0;

	if (b->tokens && make_owners(b, batch) != 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->n_devices && r == 0; i++) {
		struct device *d = &b->devices[i];

		r = share_begin(&d->share, batch->n_jobs);
		if (r == 0)
			r = b->tokens ? prepare_tokens(b, d, batch) : prepare_heads(d, batch);
	}
	return r;
}

/* What the group dies of: the first device that failed itself, else what the first heard of the others. */
static void find_fault(struct backend *b)
{
	for (int own = 1; own >= 0; own--) {
		for (uint32_t i = 0; i < b->n_devices && !b->fault[0]; i++) {
			if (b->devices[i].result && b->devices[i].own_fault == own)
				snprintf(b->fault, sizeof(b->fault), "device %u of %u: %.200s", i,
					 b->n_devices, b->devices[i].error);
		}
	}
}

void batch_run(struct backend *b, const struct backend_batch *batch)
{
	b->batch = batch;
	threads_run(b->threads, run_device, b, b->n_devices, false);
	b->batch = NULL;
	find_fault(b);
}
