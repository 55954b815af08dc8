/*
 * lru.h - idle nodes of a holding by tier, the oldest first, children before parents.
 *
 * An idle node is in the list of each tier in which it has slices (node_n_in). A node that falls
 * idle joins at the end, as its children did before it; one that comes to have slices in a tier
 * while it is idle stands right before its parent. Where domains are limited or models short of
 * room, a list's first entry is what goes next.
 */
#ifndef COPPICE_KVSTORE_LRU_H
#define COPPICE_KVSTORE_LRU_H

#include "core.h"
#include "kvstore/base/prefetch.h"

bool lru_has(const struct store_node *n, enum store_tier tier);
/* Whatever is due of an idle node: joins the lists of its tiers, leaves those of others. */
void lru_update(struct store_node *n);
/* Leaves all lists. */
void lru_leave(struct store_node *n);
/* upper is new above n: in the lists in which n was it stands right after it, and each leaves where
 * it has nothing. The device's idle slices are counted by the caller. */
void lru_split(struct store_node *n, struct store_node *upper);

/* n stands where its only child stood in the lists in which that is and n is not, and the child
 * leaves all. The device's idle slices are counted by the caller. */
void lru_collapse(struct store_node *n, struct store_node *child);

/* The oldest of a tier; NULL: none. */
struct store_node *lru_oldest_of_domain(const struct store_domain *d, enum store_tier tier);
struct store_node *lru_oldest_of_model(const struct store_model *m, enum store_tier tier);
struct store_node *lru_oldest(const struct store *s, enum store_tier tier);
/* Of the domains that have more of a lower tier than they may. */
struct store_node *lru_oldest_beyond(const struct store *s, enum store_tier tier);
uint64_t lru_stamp(const struct store_node *n, enum store_tier tier);

/* The neighbours that lru_leave will write to: in a big store the only lines of an open that
 * nothing else has led to before. */
PREFETCHES void lru_prefetch(const struct store_node *n)
{
	if (!n->listed)
		return;
	__builtin_prefetch(n->lru.tqe_prev, 1);
	if (n->lru.tqe_next)
		__builtin_prefetch(&n->lru.tqe_next->lru, 1);
}

#endif
