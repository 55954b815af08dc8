/*
 * state.h - what the files of this folder share: what is under way between tiers, and what waits to
 * be.
 */
#ifndef COPPICE_KVSTORE_STATE_H
#define COPPICE_KVSTORE_STATE_H

#include "kvstore/tier.h"
#include "kvstore/tree/core.h"

TAILQ_HEAD(tier_moves, tier_move);

enum tier_way { TIER_DOWN, TIER_UP, TIER_READ, TIER_WRITE, TIER_WAYS };

struct tier_queue {
	struct tier_moves moves; /* in order of beginning, which is that of their ends */
	uint32_t n;
};

struct tiers {
	struct places *places; /* the store's */
	struct tier_mover mover;
	uint32_t depth;
	bool long_paths; /* sequences may stand below the device */
	/* slices that left the device while they were used, and sequences that came to stand below
	 * it */
	uint64_t n_left;
	struct tier_queue queues[TIER_WAYS];
	struct store_wants wants; /* not met yet, in order of asking */
	struct store_wants tails; /* sequences that have one, in order of having got it */
	struct store_lru dirty; /* nodes whose paths are to be written */
	uint32_t n_wants, n_dirty;
	struct store_tiers_stats stats; /* what is counted as it happens */
};

#endif
