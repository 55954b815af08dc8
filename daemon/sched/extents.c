/*
 * extents.c - when memory of the pool comes and goes.
 *
 * Before a driver takes memory back it may wait for all that the device has to do. So while the
 * backend is at work an extent that the store has given back is only noted, and counts as taken;
 * it goes with the first round in which nothing is under way, or sooner where it is asked for
 * again, as whoever gets it is to find it as fresh memory is.
 */
#include "extents.h"

#include "daemon/base/grow.h"

#include <errno.h>

static void release(struct sched *s, uint32_t extent)
{
	s->core.ops->extent_release(s->core.backend, extent);
	ledger_give(s->core.ledger, LEDGER_KV, s->core.config->extent_bytes);
}

void extents_settle(struct sched *s)
{
	while (s->n_leaving > 0)
		release(s, s->leaving[--s->n_leaving]);
}

void extents_release(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	if (backend_is_at_work(s) && GROW(s->leaving, s->leaving_room, s->n_leaving + 1) == 0)
		s->leaving[s->n_leaving++] = extent;
	else
		release(s, extent);
}

/* It comes back before it has gone. */
static void release_if_leaving(struct sched *s, uint32_t extent)
{
	for (uint32_t i = 0; i < s->n_leaving; i++) {
		if (s->leaving[i] != extent)
			continue;
		s->leaving[i] = s->leaving[--s->n_leaving];
		release(s, extent);
	}
}

int extents_commit(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;
	uint64_t bytes = s->core.config->extent_bytes;
	int r;

	release_if_leaving(s, extent);
	r = ledger_take(s->core.ledger, LEDGER_KV, bytes);
	if (r < 0 && s->n_leaving > 0) {
		extents_settle(s);
		r = ledger_take(s->core.ledger, LEDGER_KV, bytes);
	}
	if (r < 0)
		return r;
	r = s->core.ops->extent_commit(s->core.backend, extent);
	if (r < 0)
		ledger_give(s->core.ledger, LEDGER_KV, bytes);
	return r;
}

uint32_t extents_left(void *ctx)
{
	const struct sched *s = ctx;
	uint64_t n = ledger_left(s->core.ledger) / s->core.config->extent_bytes + s->n_leaving;

	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}
