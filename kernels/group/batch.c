/*
 * batch.c - a batch on all devices of a group, each by a thread; see batch.h.
 *
 * What may fail for want of memory is prepared before anything has started. Of devices that meet,
 * none begins an exchange until all have submitted, and those that have not come in time are told
 * not to: otherwise one would wait on the device for another that never comes. Where one has no
 * room for its share, none begins one. Whoever failed itself is named; what the others heard of it
 * is not.
 */
#include "batch.h"

#include "proto/arith.h"
#include "proto/clock.h"
#include "kernels/cpu/attend.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u
#define GRACE_MS 1000u /* devices that wait for another say so themselves, by then */
#define SPINS 256u

/* One device has all of both. */
static bool shares_tokens(const struct backend *b, const struct work_shape *shape)
{
	return shape->split == WORK_TOKENS && b->n_all > 1;
}

/* A page is on one device. */
static bool has_pages(const struct backend *b, const struct work_shape *shape)
{
	return shape->split != WORK_HEADS && b->n_all > 1;
}

/* It has something of the KV. */
static bool takes_part(const struct device *d, const struct work_shape *shape)
{
	return shape->split != WORK_HOME || shape->home == d->share.device;
}

/* ---- arenas of devices ---------------------------------------------------------------------- */

int batch_add_arena(struct backend *b, uint32_t device, uint64_t base, uint64_t bytes)
{
	struct batch_arena *arenas = realloc(b->arenas, (b->n_arenas + 1) * sizeof(*arenas));

	if (!arenas) {
		b->ops->arena_free(b->devices[device].backend, base);
		return -ENOMEM;
	}
	b->arenas = arenas;
	arenas[b->n_arenas++] = (struct batch_arena){base, bytes, device};
	return 0;
}

static const struct batch_arena *find_arena(const struct backend *b, uint64_t address)
{
	for (uint32_t i = 0; i < b->n_arenas; i++) {
		if (address - b->arenas[i].base < b->arenas[i].bytes)
			return &b->arenas[i];
	}
	return NULL;
}

bool batch_drop_arena(struct backend *b, uint64_t base, uint32_t *ret_device)
{
	const struct batch_arena *arena = find_arena(b, base);

	if (!arena)
		return false;
	*ret_device = arena->device;
	b->arenas[arena - b->arenas] = b->arenas[--b->n_arenas];
	return true;
}

/* ---- a batch, on a device's thread ---------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static int device_fail(struct device *d, int r,
							     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	return r;
}

/* What the device says of an error of its own, if anything. */
static const char *reason(const struct backend *b, const struct device *d, int r)
{
	const char *fault = b->ops->fault ? b->ops->fault(d->backend) : NULL;

	return fault ? fault : strerror(-r);
}

static int device_submit(struct backend *b, struct device *d, uint64_t *ret_id)
{
	struct backend_batch batch = {d->share.jobs, d->share.n_jobs};
	int r = b->ops->submit(d->backend, &batch, ret_id);

	return r ? device_fail(d, r, "its share was refused: %s", reason(b, d, r)) : 0;
}

static int device_local(struct backend *b, struct device *d)
{
	uint64_t deadline_ns = clock_now_ns() + b->timeout_ms * NS_PER_MS, id, done = 0;
	int r = device_submit(b, d, &id);

	if (r)
		return r;
	while (done < id && r == 0) {
		r = b->ops->completed(d->backend, &done);
		if (r)
			return device_fail(d, r, "it failed: %s", reason(b, d, r));
		if (done < id && clock_now_ns() > deadline_ns)
			return device_fail(d, -ETIMEDOUT, "it has not answered for %u ms",
					   b->timeout_ms);
	}
	return 0;
}

/* Those of the device, or of all processes' rows this one's copy. */
static void write_rows(const struct backend *b, uint32_t device, const struct backend_job *job,
		       const struct exchange_rows *rows)
{
	size_t n = 2 + (size_t)rows->head_dim;

	for (uint32_t row = 0; row < rows->n_rows; row++) {
		const float *at = rows->folded + row * exchange_row_floats(rows);

		if (rows->owner && rows->owner[row] != device)
			continue;
		for (uint32_t head = 0; head < rows->n_heads; head++, at += n)
			attend_write(b->vec, job, row, head,
				     &(struct attend_sums){{at[0], at[1]}, at + 2});
	}
}

static int device_exchange(struct backend *b, struct device *d)
{
	const float *parts = d->parts.host;
	const uint32_t *owner = b->owner.data;

	for (uint32_t i = 0; i < b->batch->n_jobs; i++) {
		const struct backend_job *job = &b->batch->jobs[i];
		if (!shares_tokens(b, job->shape))
			continue;

		struct exchange_rows rows = {.parts = parts,
					     .folded = d->folded,
					     .owner = b->ranks ? NULL : owner,
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
	uint64_t start_ns = clock_now_ns(), local_ns;

	(void)thread;
	d->result = device_local(b, d);
	d->own_fault = d->result != 0;
	local_ns = clock_now_ns();
	d->stats.local_ns += local_ns - start_ns;
	if (!d->exchange)
		return;
	if (d->result)
		exchange_abort(d->exchange);
	else
		d->result = device_exchange(b, d);
	d->stats.exchange_ns += clock_now_ns() - local_ns;
}

/* The first device whose share is not under way. False: all are. */
static bool find_missing(struct backend *b, uint32_t *ret)
{
	for (uint32_t i = 0; i < b->n_devices; i++) {
		if (atomic_load_explicit(&b->devices[i].submitted, memory_order_relaxed))
			continue;
		*ret = i;
		return true;
	}
	return false;
}

/* Nobody begins who comes after this; who saw the last one come in the same moment waits for us no
 * longer than the time limit. */
static bool give_up_waiting(struct backend *b, struct device *d, uint32_t missing)
{
	atomic_fetch_add_explicit(&b->n_refused, 1, memory_order_relaxed);
	if (d->result == 0)
		d->result =
			device_fail(d, -ETIMEDOUT, "device %u has not taken its share for %u ms",
				    b->first + missing, b->timeout_ms);
	return false;
}

/* Every device has a thread, which is in here until all are, but not for ever. False: one was
 * refused, or has not come. */
static bool all_submitted(struct backend *b, struct device *d)
{
	uint64_t deadline_ns = clock_now_ns() + (b->timeout_ms + GRACE_MS) * NS_PER_MS;
	uint32_t missing;

	atomic_fetch_add_explicit(&b->n_refused, d->result != 0, memory_order_relaxed);
	atomic_store_explicit(&d->submitted, true, memory_order_relaxed);
	/* release: whoever counts all sees who was refused */
	atomic_fetch_add_explicit(&b->n_submitted, 1, memory_order_release);
	for (uint32_t i = 0;
	     atomic_load_explicit(&b->n_submitted, memory_order_acquire) < b->n_devices; i++) {
		if (i % SPINS != SPINS - 1)
			continue;
		sched_yield();
		if (clock_now_ns() > deadline_ns && find_missing(b, &missing))
			return give_up_waiting(b, d, missing);
	}
	return atomic_load_explicit(&b->n_refused, memory_order_relaxed) == 0;
}

/* Of devices that meet. */
static void start_device(void *arg, uint32_t thread, uint32_t unit)
{
	struct backend *b = arg;
	struct device *d = &b->devices[unit];
	uint64_t id;

	(void)thread;
	d->result = device_submit(b, d, &id);
	d->own_fault = d->result != 0;
	if (!all_submitted(b, d))
		return;
	d->result = b->ops->conclude(d->backend);
	if (d->result)
		device_fail(d, d->result, "the exchange did not begin: %s",
			    reason(b, d, d->result));
	d->own_fault = d->result != 0;
}

/* ---- before and after ----------------------------------------------------------------------- */

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

/* Rows whose O is wanted in a device's arena go to that device, others to all in equal runs: of
 * this process's. */
static void choose_owners(const struct backend *b, const struct backend_job *job, uint32_t *owner)
{
	for (uint32_t row = 0; row < job->list->n_rows; row++) {
		const struct backend_io *io = &job->io[job->list->rows[row].query];
		const struct batch_arena *arena =
			b->n_arenas && io->o ? find_arena(b, io->o) : NULL;

		owner[row] = b->first +
			     (arena ? arena->device
				    : (uint32_t)((uint64_t)row * b->n_devices / job->list->n_rows));
	}
}

static int make_owners(struct backend *b, const struct backend_batch *batch)
{
	uint32_t *owner;
	size_t n = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++)
		n += shares_tokens(b, batch->jobs[i].shape) ? batch->jobs[i].list->n_rows : 0;
	owner = array_room(&b->owner, n, sizeof(*owner));
	if (!owner)
		return -ENOMEM;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		if (!shares_tokens(b, batch->jobs[i].shape))
			continue;
		choose_owners(b, &batch->jobs[i], owner);
		owner += batch->jobs[i].list->n_rows;
	}
	return 0;
}

/* Where devices do not meet, their partials come to the host. */
static int prepare_parts(struct backend *b, struct device *d, const struct backend_batch *batch)
{
	size_t all = 0, most = 0;

	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];
		size_t bytes = shares_tokens(b, job->shape)
				       ? group_parts_bytes(job->shape, job->list->n_rows)
				       : 0;

		all += bytes;
		most = max_u64(bytes, most);
	}
	return reserve_parts(b, d, all) != 0 || reserve_folded(d, most) != 0 ? -ENOMEM : 0;
}

static int prepare_device(struct backend *b, struct device *d, const struct backend_batch *batch)
{
	const uint32_t *owner = b->owner.data;
	size_t at = 0;

	if (share_begin(&d->share, batch->n_jobs) != 0 ||
	    (!b->meets && prepare_parts(b, d, batch) != 0))
		return -ENOMEM;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];
		struct backend_job *own;
		int r;

		if (!takes_part(d, job->shape))
			continue;
		r = has_pages(b, job->shape) ? share_tokens(&d->share, job, &own)
					     : share_heads(&d->share, job, &own);
		if (r)
			return r;
		if (!shares_tokens(b, job->shape))
			continue;
		own->owner = b->meets ? owner : NULL;
		own->parts = b->meets ? 0 : d->parts.base + at;
		owner += job->list->n_rows;
		at += group_parts_bytes(job->shape, job->list->n_rows);
	}
	return 0;
}

int batch_prepare(struct backend *b, const struct backend_batch *batch)
{
	int r = make_owners(b, batch);

	for (uint32_t i = 0; i < b->n_devices && r == 0; i++)
		r = prepare_device(b, &b->devices[i], batch);
	return r;
}

static void give_up(struct backend *b)
{
	for (uint32_t i = 0; b->ops->give_up && i < b->n_devices; i++)
		b->ops->give_up(b->devices[i].backend);
}

/* What the group dies of: the first device that failed itself, else what the first heard of the
 * others. */
static void find_fault(struct backend *b)
{
	for (int own = 1; own >= 0; own--) {
		for (uint32_t i = 0; i < b->n_devices && !b->fault[0]; i++) {
			if (b->devices[i].result && b->devices[i].own_fault == own)
				snprintf(b->fault, sizeof(b->fault), "device %u of %u: %.200s",
					 b->first + i, b->n_all, b->devices[i].error);
		}
	}
	if (b->fault[0])
		give_up(b);
}

/* What all devices that meet say alike, each before it has begun anything. */
static int find_refusal(const struct backend *b)
{
	int r = b->devices[0].result;

	if (!b->meets || b->n_refused < b->n_devices)
		return 0;
	for (uint32_t i = 1; i < b->n_devices; i++)
		r = b->devices[i].result == r ? r : 0;
	return r == -EIO ? 0 : r;
}

/* What some say while others have begun, and all can do without: no memory for their share, or its
 * plan is gone. Other processes would not hear of it. */
static int find_abandoned(const struct backend *b)
{
	int refusal = 0;

	if (!b->meets || b->ranks)
		return 0;
	for (uint32_t i = 0; i < b->n_devices; i++) {
		int r = b->devices[i].result;

		if (r && r != -ENOMEM && r != -ESTALE)
			return 0;
		refusal = refusal ? refusal : r;
	}
	return refusal;
}

static void abandon_device(void *arg, uint32_t thread, uint32_t unit)
{
	struct backend *b = arg;
	struct device *d = &b->devices[unit];

	(void)thread;
	d->result = b->ops->abandon(d->backend, d->result != 0);
	if (d->result)
		device_fail(d, d->result, "what another refused did not end: %s",
			    reason(b, d, d->result));
	d->own_fault = d->result != 0;
}

int batch_run(struct backend *b, const struct backend_batch *batch)
{
	int r;

	b->batch = batch;
	b->n_submitted = b->n_refused = 0;
	for (uint32_t i = 0; i < b->n_devices; i++)
		b->devices[i].submitted = false;
	threads_run(b->threads, b->meets ? start_device : run_device, b, b->n_devices, false);
	b->batch = NULL;
	r = find_refusal(b);
	if (r) {
		b->last_id--; /* none has counted it */
		return r;
	}
	r = find_abandoned(b);
	if (r)
		threads_run(b->threads, abandon_device, b, b->n_devices, false);
	find_fault(b);
	if (!b->meets)
		b->done_id = b->last_id;
	return b->fault[0] ? 0 : r;
}

/* Those after one that cannot keep the plan as it was; nobody asks for it again. */
int batch_advance(struct backend *b, const struct backend_job *job)
{
	int r = b->ops->advance ? 0 : -ESTALE;
	bool soon = false;

	for (uint32_t i = 0; i < b->n_devices && r >= 0; i++) {
		struct device *d = &b->devices[i];
		struct backend_job own;

		if (!takes_part(d, job->shape))
			continue;
		r = has_pages(b, job->shape) ? share_advance_tokens(&d->share, job, &own)
					     : share_advance_heads(&d->share, job, &own);
		if (r == 0)
			r = b->ops->advance(d->backend, &own);
		soon = soon || r == BACKEND_SOON;
	}
	return r >= 0 && soon ? BACKEND_SOON : r;
}

/* One device after the other, as nobody waits. */
int batch_make_ahead(struct backend *b, const struct backend_job *job)
{
	int r = b->ops->prepare ? 0 : -ESTALE;

	for (uint32_t i = 0; i < b->n_devices && r == 0; i++) {
		struct device *d = &b->devices[i];
		struct backend_job own;

		if (!takes_part(d, job->shape))
			continue;
		r = has_pages(b, job->shape) ? share_prepare_tokens(&d->share, job, &own)
					     : share_prepare_heads(&d->share, job, &own);
		if (r == 0)
			r = b->ops->prepare(d->backend, &own);
		if (r == 0 && has_pages(b, job->shape))
			share_prepared(&d->share);
	}
	return r;
}

void batch_look(struct backend *b)
{
	uint64_t least = b->last_id;
	uint32_t slowest = 0;

	for (uint32_t i = 0; i < b->n_devices; i++) {
		struct device *d = &b->devices[i];
		uint64_t done = 0;

		d->result = b->ops->completed(d->backend, &done);
		if (d->result)
			device_fail(d, d->result, "it failed: %s", reason(b, d, d->result));
		d->own_fault = d->result != 0;
		slowest = done < least ? i : slowest;
		least = min_u64(done, least);
	}
	if (least > b->done_id)
		b->progress_ns = clock_now_ns();
	else if (clock_now_ns() - b->progress_ns > (b->timeout_ms + GRACE_MS) * NS_PER_MS)
		b->devices[slowest].result =
			device_fail(&b->devices[slowest], -ETIMEDOUT,
				    "it has not answered for %u ms", b->timeout_ms);
	find_fault(b);
	b->done_id = least;
}
