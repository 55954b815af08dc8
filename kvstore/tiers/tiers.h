/*
 * tiers.h - the lower tiers behind tier.h: their places, who is charged for them, and what is under
 * way.
 */
#ifndef COPPICE_KVSTORE_TIERS_H
#define COPPICE_KVSTORE_TIERS_H

#include "kvstore/tree/core.h"
#include "kvstore/tier.h"

TAILQ_HEAD(tier_moves, tier_move);

enum tier_way { TIER_DOWN, TIER_UP, TIER_READ, TIER_WRITE, TIER_WAYS };

struct tier_queue {
	struct tier_moves moves; /* in order of beginning, which is that of their ends */
	uint32_t n;
};

struct tiers {
	struct tier_mover mover;
	struct tier_host *host; /* owned */
	struct tier_file *file; /* owned; NULL: none */
	struct store_domain **owners[STORE_TIERS]; /* owned: [place] who is charged; NULL: nobody */
	/* units of host memory that nobody is charged for: on the way to the file */
	uint32_t n_passing;
	uint64_t domain_units[STORE_TIERS]; /* a domain may have; UINT64_MAX: no limit */
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
	struct store_node **path; /* owned: room for a path */
	uint32_t path_capacity;
	struct store_tiers_stats stats; /* what is counted as it happens */
};

/* Units of a page of the model in either tier; 0: it is too large, and never leaves the device but
 * to go. */
uint32_t tiers_units(const struct tiers *t, const struct store_model *m);
struct tier_room *tiers_room(const struct tiers *t, enum store_tier tier);

/* Would the holding's domain have more than it may, with a page of the holding's more? */
bool tiers_over_limit(const struct store *s, const struct store_holding *h, enum store_tier tier);
/* Is there a place for a page of the holding's, without anybody making room? */
bool tiers_has_room(const struct store *s, const struct store_holding *h, enum store_tier tier);
/* A place for a page of the holding's, with one reference and its domain charged; the oldest make
 * room. avoid: a node whose path must stay as it is; NULL: none. TIER_NONE: there is none. */
uint32_t tiers_take(struct store *s, struct store_holding *h, enum store_tier tier,
		    const struct store_node *avoid);
/* The same in host memory, for a page that passes through on its way to the file: nobody makes room
 * or is charged. */
uint32_t tiers_take_passing(struct store *s, struct store_model *m);
/* A place that was taken elsewhere is the domain's from now on. */
void tiers_charge(struct tiers *t, struct store_domain *d, enum store_tier tier, uint32_t place);
void tiers_ref(struct tiers *t, enum store_tier tier, uint32_t place);
void tiers_unref(struct store *s, enum store_tier tier, uint32_t place);

/* The path to a node from below the root on, in t->path; returns its length, 0 where there is no
 * memory. */
uint32_t tiers_path(struct tiers *t, struct store_node *n);

/* Ends what is under way, and the trees with it; what is in the file stays there. Blocks. Without
 * tiers both do nothing. */
void tiers_stop(struct store *s);
void tiers_free(struct store *s);

#endif
