/*
 * evict.h - making room: the least recently used leaf goes first, at a cost that does not depend on
 * how many there are.
 */
#ifndef COPPICE_KVSTORE_EVICT_H
#define COPPICE_KVSTORE_EVICT_H

#include "kvstore/tree/core.h"

/*
 * Takes n pages for a namespace, the first to be filled from first_row on, page i on device ret[i].page
 * (0 where the model is not striped); they are ret[i].page then. Where room is short, the domain's
 * own oldest nodes go for its limit, then those of who shares extents with it, then others' until
 * an extent is free. Where the namespace has a home, none goes that would make room on another device
 * alone, but for those that many idle ones at home are behind. All or none: -EDQUOT, -ENOSPC,
 * -ENOMEM. Where no eviction could make the room nothing is evicted; idle nodes may have gone only
 * where it was close.
 */
int evict_take(const struct store_namespace *namespace, uint32_t first_row, struct store_slice *ret,
	       uint32_t n);
/* Is there no page for the holding unless something is evicted? */
bool evict_is_due(struct store_holding *h);
/* Evicts everything that nobody uses. */
void evict_all(struct store *s);

#endif
