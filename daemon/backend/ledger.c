/*
 * ledger.c - the sum is what decides: it grows by compare and exchange alone, and never beyond the
 * limit. What each use has of it is counted behind that.
 */
#include "ledger.h"

#include "proto/arith.h"
#include "proto/clock.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#define LEFT_PERCENT 5u /* of all memory: activations, plans, drivers, others */
#define WAIT_NS UINT64_C(20000000000) /* longer than any pass takes */
#define LOOK_NS 1000000l

void ledger_init(struct ledger *ledger, uint64_t pool_bytes, uint64_t kept_bytes,
		 uint64_t weights_bytes, uint64_t memory_bytes)
{
	uint64_t most = memory_bytes - memory_bytes / 100 * LEFT_PERCENT;
	uint64_t both = pool_bytes + weights_bytes;

	most = min_u64(most, both);
	*ledger = (struct ledger){.max_bytes = max_u64(most, pool_bytes),
				  .pool_bytes = pool_bytes,
				  .kept_bytes = kept_bytes};
}

/* What all and KV have. */
struct taken {
	uint64_t all, kv;
};

static struct taken taken_now(const struct ledger *ledger)
{
	return (struct taken){atomic_load(&ledger->all_bytes), atomic_load(&ledger->of[LEDGER_KV])};
}

/* The same once what was announced is back. Who gives changes the use, all, and then what he
 * announced. So that is read first: what comes back meanwhile may count twice, but is never missed.
 * Who hears that there will be room looks again. */
static struct taken taken_soon(const struct ledger *ledger)
{
	uint64_t kv = atomic_load(&ledger->announced[LEDGER_KV]);
	uint64_t weights = atomic_load(&ledger->announced[LEDGER_WEIGHTS]);
	struct taken t = {.kv = atomic_load(&ledger->of[LEDGER_KV])};

	t.all = atomic_load(&ledger->all_bytes);
	t.kv -= min_u64(kv, t.kv);
	t.all -= min_u64(kv + weights, t.all);
	return t;
}

/* What KV has taken of the pool's last is not kept any more. */
static uint64_t kept_from(const struct ledger *ledger, enum ledger_use use, uint64_t kv)
{
	uint64_t left = ledger->pool_bytes - kv;

	if (use == LEDGER_KV)
		return 0;
	return min_u64(left, ledger->kept_bytes);
}

/* Is there room for bytes beside so many? */
static bool has_room(const struct ledger *ledger, enum ledger_use use, struct taken t,
		     uint64_t bytes)
{
	uint64_t left = ledger->max_bytes - t.all, kept = kept_from(ledger, use, t.kv);

	return kept <= left && bytes <= left - kept;
}

/* So much of KV has to go at least, before weights have room for bytes, which all might have. */
static uint64_t lacking(const struct ledger *ledger, struct taken t, uint64_t bytes)
{
	if (has_room(ledger, LEDGER_WEIGHTS, t, bytes))
		return 0;
	return t.all + kept_from(ledger, LEDGER_WEIGHTS, t.kv) + bytes - ledger->max_bytes;
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
	struct taken t;

	if (!ledger)
		return 0;
	t = taken_now(ledger);
	do {
		t.kv = atomic_load(&ledger->of[LEDGER_KV]);
		if (!has_room(ledger, use, t, bytes))
			return -ENOSPC;
	} while (!atomic_compare_exchange_weak(&ledger->all_bytes, &t.all, t.all + bytes));
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

void ledger_announce(struct ledger *ledger, enum ledger_use use, uint64_t bytes)
{
	if (ledger)
		atomic_fetch_add(&ledger->announced[use], bytes);
}

void ledger_announce_no_more(struct ledger *ledger, enum ledger_use use, uint64_t bytes)
{
	if (ledger)
		atomic_fetch_sub(&ledger->announced[use], bytes);
}

struct ledger_wait ledger_wait_for(bool (*is_over)(const void *ctx), const void *ctx)
{
	return (struct ledger_wait){.until_ns = clock_now_ns() + WAIT_NS,
				    .is_over = is_over,
				    .ctx = ctx};
}

/* False: it is over. */
static bool wait_a_moment(const struct ledger_wait *wait)
{
	if (clock_now_ns() >= wait->until_ns || (wait->is_over && wait->is_over(wait->ctx)))
		return false;
	nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	return true;
}

bool ledger_await(const struct ledger *ledger, uint64_t bytes, const struct ledger_wait *wait)
{
	do {
		if (!has_room(ledger, LEDGER_WEIGHTS, taken_soon(ledger), bytes))
			return false;
		if (has_room(ledger, LEDGER_WEIGHTS, taken_now(ledger), bytes))
			return true;
	} while (wait_a_moment(wait));
	return false;
}

/* Who has KV may sleep: what is announced covered the rest when he looked. It may be others' by
 * now, so he is woken for as long as something is lacking beside it. */
static int ask_kv(struct ledger *ledger, uint64_t bytes, const struct ledger_wait *wait)
{
	atomic_store(&ledger->wanted_bytes, bytes);
	do {
		if (lacking(ledger, taken_soon(ledger), bytes) > 0)
			ledger->wake(ledger->wake_ctx);
	} while (lacking(ledger, taken_now(ledger), bytes) > 0 &&
		 atomic_load(&ledger->wanted_bytes) && wait_a_moment(wait));
	atomic_store(&ledger->wanted_bytes, 0);
	return lacking(ledger, taken_now(ledger), bytes) == 0 ? 0 : -ENOSPC;
}

int ledger_ask_kv(struct ledger *ledger, uint64_t bytes, const struct ledger_wait *wait)
{
	int r;

	if (!ledger || !ledger->wake || !ledger_holds_weights(ledger, bytes))
		return -ENOSPC;
	while (pthread_mutex_trylock(&ledger->asking))
		if (!wait_a_moment(wait))
			return -ENOSPC;
	r = ask_kv(ledger, bytes, wait);
	pthread_mutex_unlock(&ledger->asking);
	return r;
}

uint64_t ledger_wants_kv(const struct ledger *ledger)
{
	uint64_t bytes = ledger_is_asked(ledger) ? atomic_load(&ledger->wanted_bytes) : 0;

	return bytes ? lacking(ledger, taken_soon(ledger), bytes) : 0;
}

void ledger_has_no_kv(struct ledger *ledger, uint64_t asked)
{
	atomic_compare_exchange_strong(&ledger->wanted_bytes, &asked, 0);
}
