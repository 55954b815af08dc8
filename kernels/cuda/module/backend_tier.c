/*
 * backend_tier.c - the backend's part in tiers below the pool: copies, legs over what streams by,
 * mean keys. Once memory below the pool is pinned no launch stands any more: copies wait behind
 * what was submitted before them.
 */
#include "backend_impl.h"

#include <errno.h>

static int tiers_pin(struct backend *b, void *host, uint64_t bytes)
{
	backend_enter(b);
	int r = tier_pin(&b->tier, b->batch.queue.stream, code_copies_bulk(b->batch.code), host,
			 bytes);
	if (r)
		return r;
	b->batch.stand.able = false; /* copies stand behind what was submitted before them */
	return 0;
}

static void tiers_unpin(struct backend *b, void *host, uint64_t bytes)
{
	(void)bytes;
	backend_enter(b);
	tier_unpin(&b->tier, host);
}

static uint64_t tiers_copy(struct backend *b, const struct backend_copy *copy, enum tier_way way)
{
	uint64_t at = b->pool.base + copy->extent * b->pool.extent_bytes + copy->offset_bytes;

	backend_enter(b);
	return tier_copy(&b->tier, way,
			 &(struct tier_ask){.pool = at,
					    .bytes = copy->bytes,
					    .host = copy->host,
					    .after = copy->after});
}

static uint64_t tiers_down(struct backend *b, const struct backend_copy *copy)
{
	return tiers_copy(b, copy, TIER_DOWN);
}

static uint64_t tiers_up(struct backend *b, const struct backend_copy *copy)
{
	return tiers_copy(b, copy, TIER_UP);
}

static uint64_t tiers_downs_done(struct backend *b)
{
	return tier_ended(&b->tier, TIER_DOWN);
}

static uint64_t tiers_ups_done(struct backend *b)
{
	return tier_ended(&b->tier, TIER_UP);
}

static void tiers_kick(struct backend *b)
{
	backend_enter(b);
	tier_kick(&b->tier);
}

/* Of kv_layout.h: KV blocks of 8 tokens, swizzled. */
static uint64_t tiers_layout(struct backend *b)
{
	(void)b;
	return UINT64_C(0x6375646100000001);
}

static int tiers_leg(struct backend *b, const struct backend_batch *batch,
		     const struct backend_leg *leg, uint64_t *ret_id)
{
	const struct backend_job *jobs;
	int r;

	backend_enter(b);
	tier_mark(&b->tier, b->batch.last_id);
	r = leg_begin(&b->leg, &b->batch.queue, batch, leg, &jobs);
	if (!r)
		r = backend_submit(b, &(struct backend_batch){jobs, batch->n_jobs}, ret_id);
	return r ? r : leg_end(&b->leg, &b->batch.queue, batch, leg, *ret_id);
}

static int tiers_summary_make(struct backend *b, const struct work_shape *shape,
			      struct backend_summary **ret)
{
	(void)b;
	return summary_new(shape, ret);
}

static void tiers_summary_free(struct backend *b, struct backend_summary *summary)
{
	backend_enter(b);
	summary_free(summary);
}

static int tiers_summary_add(struct backend *b, struct backend_summary *summary,
			     const struct backend_span *span)
{
	struct sparse with;

	backend_enter(b);
	with = backend_sparse(b);
	return b->batch.queue.failed ? -EIO : summary_add(&b->summaries, &with, summary, span);
}

static const struct backend_summary_ops summary_ops = {
	.make = tiers_summary_make,
	.free = tiers_summary_free,
	.add = tiers_summary_add,
};

const struct backend_tier_ops backend_tier_ops = {
	.pin = tiers_pin,
	.unpin = tiers_unpin,
	.down = tiers_down,
	.up = tiers_up,
	.downs_done = tiers_downs_done,
	.ups_done = tiers_ups_done,
	.kick = tiers_kick,
	.leg = tiers_leg,
	.summary = &summary_ops,
	.layout = tiers_layout,
};
