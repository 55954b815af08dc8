/*
 * ledger.c - the sum is what decides: it grows by compare and exchange alone, and never beyond the
 * limit. What each use has of it is counted behind that.
 */
#include "ledger.h"

#include <assert.h>
#include <errno.h>

#define LEFT_PERCENT 5u /* of all memory: activations, plans, drivers, others */

void ledger_init(struct ledger *ledger, uint64_t pool_bytes, uint64_t weights_bytes,
		 uint64_t memory_bytes)
{
	uint64_t most = memory_bytes - memory_bytes / 100 * LEFT_PERCENT;
	uint64_t both = pool_bytes + weights_bytes;

	most = most < both ? most : both;
	*ledger = (struct ledger){.max_bytes = most > pool_bytes ? most : pool_bytes};
}

int ledger_take(struct ledger *ledger, enum ledger_use use, uint64_t bytes)
{
	uint64_t all;

	if (!ledger)
		return 0;
	all = atomic_load(&ledger->all_bytes);
	do {
		if (bytes > ledger->max_bytes - all)
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
