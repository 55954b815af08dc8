/* extents_ahead.c - how many are wanted, and which are ready. */
#include "extents_ahead.h"

#include "kvstore/store.h"
#include "proto/arith.h"

#define MOST_BYTES (UINT64_C(256) << 20)
#define PART_OF_POOL 16u
#define ROW_NS NS_PER_MS /* who is lent one later is not of the row */

static void make(void *ctx)
{
	struct extents_ahead *a = ctx;

	a->made = a->core->ops->extent_prepare(a->core->backend, a->extent);
}

void extents_ahead_init(struct extents_ahead *a, struct sched_core *core, uint32_t n)
{
	uint64_t most = min_u64(MOST_BYTES / core->config->extent_bytes, n / PART_OF_POOL);

	*a = (struct extents_ahead){.core = core};
	a->most = core->ops->extent_prepare ? (uint32_t)most : 0;
	aside_init(&a->aside, "coppice-extent");
}

void extents_ahead_done(struct extents_ahead *a)
{
	aside_done(&a->aside);
}

void extents_ahead_count(struct extents_ahead *a)
{
	uint64_t now_ns = core_clock(a->core);

	a->n_in_a_row = now_ns - a->lent_ns < ROW_NS ? a->n_in_a_row + 1 : 1;
	a->n_wanted = min_u32(max_u32(a->n_wanted, a->n_in_a_row), a->most);
	a->lent_ns = now_ns;
}

/* What the thread was at, and has done by now. Without memory for one nobody is to have any
 * ahead. Returns whether there is one. */
static bool collect(struct extents_ahead *a)
{
	bool any = a->making;

	a->making = false;
	if (!any || a->made == 0)
		return any;
	a->n_wanted = 0;
	ledger_give(a->core->ledger, LEDGER_KV, a->core->config->extent_bytes);
	return false;
}

static void collect_ready(struct extents_ahead *a)
{
	if (!collect(a))
		return;
	a->n_ready++;
	store_set_ready(a->core->store, a->extent, true);
}

bool extents_ahead_take(struct extents_ahead *a, uint32_t extent)
{
	if (a->making && a->extent == extent) {
		aside_end(&a->aside);
		return collect(a);
	}
	if (!store_is_ready(a->core->store, extent))
		return false;
	a->n_ready--;
	return true;
}

void extents_ahead_settle(struct extents_ahead *a)
{
	aside_end(&a->aside);
	collect_ready(a);
}

uint32_t extents_ahead_give(struct extents_ahead *a)
{
	if (a->n_ready == 0)
		return EXTENTS_AHEAD_NONE;
	uint32_t extent = store_last_ready(a->core->store);

	a->n_ready--;
	store_set_ready(a->core->store, extent, false);
	return extent;
}

bool extents_ahead_look(struct extents_ahead *a)
{
	if (aside_is_under_way(&a->aside))
		return false;
	collect_ready(a);
	if (a->core->now_ns >= extents_ahead_deadline_ns(a))
		a->n_wanted = 0;
	return a->n_wanted > a->n_ready;
}

void extents_ahead_make(struct extents_ahead *a)
{
	uint32_t extent = store_next_unready(a->core->store);

	if (extent == EXTENTS_AHEAD_NONE ||
	    ledger_take(a->core->ledger, LEDGER_KV, a->core->config->extent_bytes) < 0) {
		a->n_wanted = a->n_ready;
		return;
	}
	a->making = true;
	a->extent = extent;
	aside_begin(&a->aside, make, a);
}
