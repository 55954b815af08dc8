/*
 * extents.c - when memory of the pool comes and goes.
 *
 * Before a driver takes memory back it may wait for all that the device has to do. So while the
 * backend is at work an extent that the store has given back is only noted, counts as taken, and is
 * announced to who needs room. It goes with the first round in which nothing is under way. Where it
 * is asked for again before, it has never gone: the backend makes it as fresh memory is, behind
 * what is under way. The store takes what it has given back last: so who asks for another extent
 * does it when none is noted. Some have memory before anybody asks: extents_ahead.h.
 */
#include "extents.h"

#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

#define EVICT_SLICES 64u /* a round */

int extents_init(struct sched *s, uint32_t n)
{
	s->leaving = calloc(n, sizeof(*s->leaving));
	if (!s->leaving)
		return -ENOMEM;
	extents_ahead_init(&s->ahead, &s->core, n);
	return 0;
}

static void release(struct sched *s, uint32_t extent)
{
	s->core.ops->extent_release(s->core.backend, extent);
	ledger_give(s->core.ledger, LEDGER_KV, s->core.config->extent_bytes);
}

void extents_release_leaving(struct sched *s)
{
	while (s->n_leaving > 0) {
		release(s, s->leaving[--s->n_leaving]);
		ledger_announce_no_more(s->core.ledger, LEDGER_KV, s->core.config->extent_bytes);
	}
}

void extents_release(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;

	if (!backend_is_at_work(s)) {
		release(s, extent);
		return;
	}
	s->leaving[s->n_leaving++] = extent;
	ledger_announce(s->core.ledger, LEDGER_KV, s->core.config->extent_bytes);
}

static bool let_go_ahead(struct sched *s)
{
	uint32_t extent = extents_ahead_give(&s->ahead);

	if (extent != EXTENTS_AHEAD_NONE)
		extents_release(s, extent);
	return extent != EXTENTS_AHEAD_NONE;
}

void extents_let_go_ahead(struct sched *s)
{
	extents_ahead_settle(&s->ahead);
	while (let_go_ahead(s))
		;
}

void extents_done(struct sched *s)
{
	extents_release_leaving(s);
	extents_ahead_done(&s->ahead);
	free(s->leaving);
}

/* False: it is not about to go. */
static bool is_kept(struct sched *s, uint32_t extent)
{
	for (uint32_t i = 0; i < s->n_leaving; i++) {
		if (s->leaving[i] != extent)
			continue;
		s->leaving[i] = s->leaving[--s->n_leaving];
		ledger_announce_no_more(s->core.ledger, LEDGER_KV, s->core.config->extent_bytes);
		return true;
	}
	return false;
}

static int renew(struct sched *s, uint32_t extent)
{
	int r = s->core.ops->extent_renew(s->core.backend, extent);

	if (r < 0)
		release(s, extent);
	return r;
}

/* For one that is not ready: what nobody has yet is in nobody's way. */
static int take_room(struct sched *s)
{
	uint64_t bytes = s->core.config->extent_bytes;
	int r = ledger_take(s->core.ledger, LEDGER_KV, bytes);

	if (r < 0)
		extents_ahead_settle(&s->ahead);
	while (r < 0 && (r = ledger_take(s->core.ledger, LEDGER_KV, bytes)) < 0) {
		uint32_t extent = extents_ahead_give(&s->ahead);

		if (extent == EXTENTS_AHEAD_NONE)
			break;
		s->core.ops->extent_forget(s->core.backend, extent);
		ledger_give(s->core.ledger, LEDGER_KV, bytes);
	}
	return r;
}

int extents_commit(void *ctx, uint32_t extent)
{
	struct sched *s = ctx;
	uint64_t bytes = s->core.config->extent_bytes;
	int r;

	extents_ahead_count(&s->ahead);
	if (extents_ahead_take(&s->ahead, extent))
		return 0;
	if (is_kept(s, extent))
		return renew(s, extent);
	r = take_room(s);
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
	uint64_t n = ledger_left(s->core.ledger) / s->core.config->extent_bytes + s->n_leaving +
		     extents_ahead_n(&s->ahead);

	return (uint32_t)min_u64(n, UINT32_MAX);
}

bool extents_make_room(struct sched *s)
{
	uint64_t asked = ledger_is_asked(s->core.ledger), bytes;
	uint64_t extent_bytes = s->core.config->extent_bytes;
	uint32_t max_slices = backend_is_at_work(s) ? 0 : EVICT_SLICES;
	int r;

	if (ledger_wants_kv(s->core.ledger) == 0)
		return false;
	s->ahead.n_wanted = 0;
	extents_ahead_settle(&s->ahead);
	if (let_go_ahead(s))
		return true;
	bytes = ledger_wants_kv(s->core.ledger);
	if (bytes == 0)
		return true;
	r = store_give(s->core.store, (uint32_t)ceil_div_u64(bytes, extent_bytes), max_slices);
	if (r == -ENOSPC)
		ledger_has_no_kv(s->core.ledger, asked);
	return r != -EBUSY;
}

void extents_look(struct sched *s)
{
	bool more = extents_ahead_look(&s->ahead);

	if (s->ahead.n_wanted == 0 && !backend_is_at_work(s))
		(void)let_go_ahead(s);
	else if (more && s->n_leaving == 0 && !ledger_is_asked(s->core.ledger))
		extents_ahead_make(&s->ahead);
}
