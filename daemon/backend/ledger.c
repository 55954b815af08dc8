/*
 * ledger.c - the sum is what decides: it grows by compare and exchange alone, and never beyond the
 * limit. What each use has of it is counted behind that.
 */
#include "ledger.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#define LEFT_PERCENT 5u /* of all memory: activations, plans, drivers, others */
#define LOOKS 2000u /* for what was asked for */
#define LOOK_NS 1000000l

void ledger_init(struct ledger *ledger, uint64_t pool_bytes, uint64_t kept_bytes,
		 uint64_t weights_bytes, uint64_t memory_bytes)
{
	uint64_t most = memory_bytes - memory_bytes / 100 * LEFT_PERCENT;
	uint64_t both = pool_bytes + weights_bytes;

	most = most < both ? most : both;
	*ledger = (struct ledger){.max_bytes = most > pool_bytes ? most : pool_bytes,
				  .pool_bytes = pool_bytes,
				  .kept_bytes = kept_bytes};
}

/* What KV has taken of the pool's last is not kept any more. */
static uint64_t kept_from(const struct ledger *ledger, enum ledger_use use)
{
	uint64_t left = ledger->pool_bytes - atomic_load(&ledger->of[LEDGER_KV]);

	if (use == LEDGER_KV)
		return 0;
	return left < ledger->kept_bytes ? left : ledger->kept_bytes;
}

/* Is there room for bytes beside so many of all? */
static bool has_room(const struct ledger *ledger, enum ledger_use use, uint64_t all, uint64_t bytes)
{
	uint64_t left = ledger->max_bytes - all, kept = kept_from(ledger, use);

	return kept <= left && bytes <= left - kept;
}

/* So much of KV has to go at least, before weights have room for bytes, which all might have. */
static uint64_t lacking(const struct ledger *ledger, uint64_t bytes)
{
	uint64_t all = atomic_load(&ledger->all_bytes);

	if (has_room(ledger, LEDGER_WEIGHTS, all, bytes))
		return 0;
	return all + kept_from(ledger, LEDGER_WEIGHTS) + bytes - ledger->max_bytes;
}

bool ledger_holds_weights(const struct ledger *ledger, uint64_t bytes)
{
	return !ledger || bytes <= ledger->max_bytes - ledger->kept_bytes;
}

uint64_t ledger_left(const struct ledger *ledger)
{
	return ledger ? ledger->max_bytes - atomic_load(&ledger->all_bytes) : UINT64_MAX;
}

int ledger_take(struct ledger *ledger, enum ledger_use use, uint64_t bytes)
{
	uint64_t all;

	if (!ledger)
		return 0;
	all = atomic_load(&ledger->all_bytes);
	do {
		if (!has_room(ledger, use, all, bytes))
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&ledger->all_bytes, &all, all + bytes));
	atomic_fetch_add(&ledger->of[use], bytes);
	return 0;
}

void ledger_give(struct ledger *ledger, enum ledger_use use, uint64_t bytes)
{
	if (!ledger)
		return;
	assert(atomic_load(&ledger->of[use]) >= bytes);
	atomic_fetch_sub(&ledger->of[use], bytes);
	atomic_fetch_sub(&ledger->all_bytes, bytes);
}

static int ask_kv(struct ledger *ledger, uint64_t bytes)
{
	const struct timespec moment = {.tv_nsec = LOOK_NS};

	atomic_store(&ledger->wanted_bytes, bytes);
	ledger->wake(ledger->wake_ctx);
	for (uint32_t i = 0; i < LOOKS && atomic_load(&ledger->wanted_bytes); i++)
		nanosleep(&moment, NULL);
	atomic_store(&ledger->wanted_bytes, 0);
	return lacking(ledger, bytes) == 0 ? 0 : -ENOSPC;
}

int ledger_ask_kv(struct ledger *ledger, uint64_t bytes)
{
	int r;

	if (!ledger || !ledger->wake || !ledger_holds_weights(ledger, bytes))
		return -ENOSPC;
	pthread_mutex_lock(&ledger->asking);
	r = ask_kv(ledger, bytes);
	pthread_mutex_unlock(&ledger->asking);
	return r;
}

uint64_t ledger_wants_kv(struct ledger *ledger)
{
	uint64_t bytes =
		ledger ? atomic_load_explicit(&ledger->wanted_bytes, memory_order_relaxed) : 0;
	uint64_t to_go = bytes ? lacking(ledger, bytes) : 0;

	if (bytes && !to_go)
		atomic_store(&ledger->wanted_bytes, 0);
	return to_go;
}

void ledger_has_no_kv(struct ledger *ledger)
{
	atomic_store(&ledger->wanted_bytes, 0);
}
