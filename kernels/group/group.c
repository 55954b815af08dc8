/*
 * group.c - a group as a backend: passes on to the devices what is theirs, and sums up what they
 * say. An extent, and memory of the host, is there on all devices or on none.
 */
#include "group.h"

#include "batch.h"
#include "exchange.h"
#include "group_open.h"
#include "proto/clock.h"
#include "kernels/say.h"

#include <errno.h>
#include <unistd.h>

/* What coppice-bench multi finds on a two-core machine, in round figures: it weighs a wait, it
 * promises nothing. */
#define HOST_EXCHANGE_NS 30000.0
/* Of devices that meet: flags and a launch, and the partials at what a link between two gives. */
#define EXCHANGE_NS 5000.0
/* Arithmetic of such devices that have some heads of all tokens, beside that with all heads of
 * some: a layer of 64 agents behind 262,144 tokens, 32/8 heads of 128, took 187 us instead of 157
 * on four H200, 318 instead of 310 on two. Less reading and what is fixed that is 1.36 and 1.04
 * times as much. */
#define HEADS_ARITHMETIC 1.25

/* ---- pages, extents, arenas ----------------------------------------------------------------- */

static uint64_t group_page_bytes(struct backend *b, const struct work_shape *shape, char *error,
				 size_t error_bytes)
{
	struct work_shape share;

	if (b->ranks && shape->split != WORK_TOKENS) {
		say(error, error_bytes, "devices of several processes share tokens, not heads");
		return 0;
	}
	if (shape->split == WORK_HOME && shape->home >= b->n_devices) {
		say(error, error_bytes, "there is no device %u of %u", shape->home, b->n_devices);
		return 0;
	}
	if (shape->split != WORK_HEADS || shape->n_kv_heads == 0 ||
	    shape->n_q_heads % shape->n_kv_heads != 0)
		return b->ops->page_bytes(b->devices[0].backend, shape, error, error_bytes);
	if (shape->n_kv_heads % b->n_devices != 0) {
		say(error, error_bytes, "%u KV heads cannot be shared out evenly to %u devices",
		    shape->n_kv_heads, b->n_devices);
		return 0;
	}
	share = share_shape(shape, b->n_devices);
	return b->n_devices * b->ops->page_bytes(b->devices[0].backend, &share, error, error_bytes);
}

static void count_extent(struct backend *b, struct device *d, int by)
{
	d->n_committed += (uint32_t)by;
	d->stats.pool_bytes = d->n_committed * b->extent_bytes;
	if (d->stats.pool_bytes > d->stats.pool_peak_bytes)
		d->stats.pool_peak_bytes = d->stats.pool_bytes;
}

static void group_extent_release(struct backend *b, uint32_t extent)
{
	for (uint32_t i = 0; i < b->n_devices; i++) {
		b->ops->extent_release(b->devices[i].backend, extent);
		count_extent(b, &b->devices[i], -1);
	}
}

static int group_extent_commit(struct backend *b, uint32_t extent)
{
	int r = 0;

	for (uint32_t i = 0; i < b->n_devices && r == 0; i++) {
		r = b->ops->extent_commit(b->devices[i].backend, extent);
		if (r == 0)
			count_extent(b, &b->devices[i], 1);
		while (r && i--) {
			b->ops->extent_release(b->devices[i].backend, extent);
			count_extent(b, &b->devices[i], -1);
		}
	}
	return r;
}

static int group_extent_renew(struct backend *b, uint32_t extent)
{
	int r = 0;

	for (uint32_t i = 0; i < b->n_devices && r == 0; i++)
		r = b->ops->extent_renew(b->devices[i].backend, extent);
	return r;
}

/* io has one address for all devices. */
static int group_arena_attach(struct backend *b, void *host, uint64_t bytes, uint64_t *ret_base)
{
	uint64_t first = 0;
	int r = 0;

	for (uint32_t i = 0; i < b->n_devices; i++) {
		uint64_t base = 0;

		r = b->ops->arena_attach(b->devices[i].backend, host, bytes, &base);
		first = i ? first : base;
		if (r == 0 && base != first) {
			b->ops->arena_detach(b->devices[i].backend, base, bytes);
			r = -ENOTSUP;
		}
		while (r && i--)
			b->ops->arena_detach(b->devices[i].backend, first, bytes);
		if (r)
			return r;
	}
	*ret_base = first;
	return 0;
}

static void group_arena_detach(struct backend *b, uint64_t base, uint64_t bytes)
{
	/* the first has the memory, others share it */
	for (uint32_t i = b->n_devices; i-- > 0;)
		b->ops->arena_detach(b->devices[i].backend, base, bytes);
}

static int arena_on(struct backend *b, uint32_t device, uint64_t bytes, struct backend_arena *ret)
{
	struct backend_arena arena = *ret;
	int r = b->ops->arena_new(b->devices[device].backend, bytes, &arena);

	if (r < 0)
		return r;
	r = batch_add_arena(b, device, arena.base, bytes);
	if (r < 0)
		close(arena.fd);
	else
		*ret = arena;
	return r;
}

/* On the device that ret->device names. */
static int group_arena_new(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	int r = -ENOTSUP;

	if (b->ops->arena_new && !b->apart)
		r = -ENODEV;
	for (uint32_t i = 0; r == -ENODEV && i < b->n_devices; i++) {
		r = arena_on(b, i, bytes, ret);
	}
	return r;
}

static void group_arena_free(struct backend *b, uint64_t base)
{
	uint32_t device;

	if (batch_drop_arena(b, base, &device))
		b->ops->arena_free(b->devices[device].backend, base);
}

/* ---- a batch -------------------------------------------------------------------------------- */

static void count_batch(struct backend *b, const struct backend_batch *batch, uint64_t busy_ns)
{
	b->counters.batches++;
	b->counters.busy_ns += busy_ns;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		const struct backend_job *job = &batch->jobs[i];
		uint64_t key_bytes = 2 * (uint64_t)job->shape->head_dim *
				     work_dtype_bytes(job->shape->dtype) * job->shape->n_kv_heads;

		b->counters.rows += job->list->n_rows;
		b->counters.kv_bytes_alone += job->list->kv_tokens_alone * key_bytes;
	}
}

static int check_jobs(struct backend *b, const struct backend_batch *batch)
{
	if (b->fault[0])
		return -EIO;
	for (uint32_t i = 0; i < batch->n_jobs; i++) {
		if (group_page_bytes(b, batch->jobs[i].shape, NULL, 0) == 0)
			return -EINVAL;
	}
	return 0;
}

static int group_submit(struct backend *b, const struct backend_batch *batch, uint64_t *ret_id)
{
	uint64_t start_ns = clock_now_ns();
	int r = check_jobs(b, batch);

	if (r == 0)
		r = batch_prepare(b, batch);
	if (r)
		return r;
	if (b->done_id == b->last_id)
		b->progress_ns = start_ns;
	b->last_id++;
	r = batch_run(b, batch);
	if (r)
		return r;
	count_batch(b, batch, b->meets ? 0 : clock_now_ns() - start_ns);
	*ret_id = b->last_id;
	return 0;
}

static uint64_t group_progress(struct backend *b)
{
	uint64_t n = 0;

	for (uint32_t i = 0; b->ops->progress && i < b->n_devices; i++)
		n += b->ops->progress(b->devices[i].backend);
	return n;
}

static int group_advance(struct backend *b, const struct backend_job *job)
{
	return b->fault[0] ? -ESTALE : batch_advance(b, job);
}

static int group_prepare(struct backend *b, const struct backend_job *job)
{
	return batch_make_ahead(b, job);
}

static int group_completed(struct backend *b, uint64_t *ret_id)
{
	if (b->done_id < b->last_id && !b->fault[0])
		batch_look(b);
	if (b->fault[0])
		return -EIO;
	*ret_id = b->done_id;
	return 0;
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* KV on one device that moves want on another. */
static uint64_t crossing_bytes(const struct backend *b, const struct work_shape *shape,
			       const struct backend_move *moves, uint32_t n)
{
	uint64_t row_bytes = 2 * (uint64_t)shape->head_dim * work_dtype_bytes(shape->dtype) *
			     shape->n_kv_heads * shape->n_layers;
	uint32_t n_crossing = 0;

	for (uint32_t i = 0; i < n; i++)
		n_crossing += cut_device(moves[i].from_page, b->n_all) !=
			      cut_device(moves[i].to_page, b->n_all);
	return n_crossing * row_bytes;
}

static int move_tokens(struct backend *b, const struct work_shape *shape,
		       const struct backend_move *moves, uint32_t n)
{
	uint64_t crossing = crossing_bytes(b, shape, moves, n);
	int r = 0;

	b->counters.kv_bytes_moved += crossing;
	if (crossing)
		return -EXDEV;
	for (uint32_t i = 0; i < n && r == 0; i++) {
		uint32_t device = cut_device(moves[i].to_page, b->n_all) - b->first;
		struct backend_move move = moves[i];

		if (device >= b->n_devices)
			continue; /* another process's */
		move.from_page = cut_page(move.from_page, b->n_all);
		move.to_page = cut_page(move.to_page, b->n_all);
		r = b->ops->move(b->devices[device].backend, shape, &move, 1);
	}
	return r;
}

static int group_move(struct backend *b, const struct work_shape *shape,
		      const struct backend_move *moves, uint32_t n)
{
	struct work_shape share = share_shape(shape, b->n_devices);
	int r = 0;

	if (group_page_bytes(b, shape, NULL, 0) == 0)
		return -EINVAL;
	if (shape->split != WORK_HEADS)
		return move_tokens(b, shape, moves, n);
	for (uint32_t i = 0; i < b->n_devices && r == 0; i++)
		r = b->ops->move(b->devices[i].backend, &share, moves, n);
	return r;
}

/* Counted by itself, where devices meet; else by the host, which exchanges for it. */
static uint64_t exchange_bytes_of(const struct device *d, const struct backend_counters *own)
{
	return d->exchange ? d->exchange->sent_bytes : own->exchange_bytes;
}

void group_stats(struct backend *b, uint32_t device, struct group_stats *ret)
{
	struct device *d = &b->devices[device];
	struct backend_counters counters;

	b->ops->counters(d->backend, &counters);
	*ret = d->stats;
	ret->kv_bytes_read = counters.kv_bytes_read;
	ret->appended_tokens = d->share.appended_tokens;
	ret->exchange_bytes = exchange_bytes_of(d, &counters);
	if (b->meets) {
		ret->exchange_ns = counters.exchange_ns;
		ret->local_ns = counters.busy_ns - counters.exchange_ns;
	}
}

struct backend *group_backend(struct backend *b, uint32_t device)
{
	return b->devices[device].backend;
}

const char *group_notice(const struct backend *b)
{
	return b->notice[0] ? b->notice : NULL;
}

/* Of how they meet; else what one of them says, as all are of one kind. */
static const char *group_says(struct backend *b)
{
	if (b->notice[0] || !b->ops->notice)
		return group_notice(b);
	return b->ops->notice(b->devices[0].backend);
}

static void group_counters(struct backend *b, struct backend_counters *ret)
{
	*ret = b->counters;
	for (uint32_t i = 0; i < b->n_devices; i++) {
		struct backend_counters own;

		b->ops->counters(b->devices[i].backend, &own);
		ret->kv_bytes_read += own.kv_bytes_read;
		ret->exchange_bytes += exchange_bytes_of(&b->devices[i], &own);
		own.exchange_ns += b->devices[i].stats.exchange_ns;
		if (own.exchange_ns > ret->exchange_ns)
			ret->exchange_ns = own.exchange_ns;
		if (b->meets && own.busy_ns > ret->busy_ns)
			ret->busy_ns = own.busy_ns;
	}
}

static void group_cost(struct backend *b, const struct work_shape *shape, struct backend_cost *ret)
{
	b->ops->cost(b->devices[0].backend, shape, ret);
	if (shape->split == WORK_TOKENS && b->n_all > 1)
		ret->fixed_ns += b->meets ? EXCHANGE_NS : HOST_EXCHANGE_NS;
	if (shape->split == WORK_HOME)
		return;
	ret->kv_ns_per_byte /= b->n_all;
	ret->row_ns_per_byte /= b->n_all;
	if (shape->split == WORK_HEADS && b->meets && b->n_all > 1)
		ret->row_ns_per_byte *= HEADS_ARITHMETIC;
}

static const char *group_fault(struct backend *b)
{
	for (uint32_t i = 0; !b->fault[0] && b->ops->fault && i < b->n_devices; i++) {
		const char *fault = b->ops->fault(b->devices[i].backend);

		if (fault)
			return fault;
	}
	return b->fault[0] ? b->fault : NULL;
}

static uint32_t group_tile_rows(struct backend *b, const struct work_shape *shape)
{
	return b->ops->tile_rows(b->devices[0].backend, shape);
}

const struct backend_ops backend_group = {
	.name = "group",
	.unseen = 2.4, /* as of devices, GPUs or not */
	.open = group_open,
	.close = group_close,
	.page_bytes = group_page_bytes,
	.extent_commit = group_extent_commit,
	.extent_release = group_extent_release,
	.extent_renew = group_extent_renew,
	.arena_attach = group_arena_attach,
	.arena_detach = group_arena_detach,
	.arena_new = group_arena_new,
	.arena_free = group_arena_free,
	.advance = group_advance,
	.prepare = group_prepare,
	.submit = group_submit,
	.progress = group_progress,
	.completed = group_completed,
	.move = group_move,
	.counters = group_counters,
	.cost = group_cost,
	.fault = group_fault,
	.notice = group_says,
	.tile_rows = group_tile_rows,
};
