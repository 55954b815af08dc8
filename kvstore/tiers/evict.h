/*
 * evict.h - pages for whoever needs them, and room made for them.
 *
 * What goes is always the last slice of the oldest leaf that nobody uses. It goes down a tier where
 * there is one. What that costs does not depend on how many leaves there are.
 */
#ifndef COPPICE_KVSTORE_EVICT_H
#define COPPICE_KVSTORE_EVICT_H

#include "kvstore/tree/core.h"

/*
 * Takes n pages for a namespace. ret[i].page says on which device page i is to be (0 where the
 * model is not striped), and is that page afterwards. The rows of the first are handed out from
 * first_row on, those of the others from 0.
 *
 * Where there is no free page, idle slices are evicted until there is one, in this order:
 *  1. if the domain would hold more bytes than it may: its own oldest, of any model;
 *  2. the oldest of those in whose extents the page would be: of all domains of the model that
 *     have no limit, or of a limited domain's holding of it;
 *  3. if the domain may have no more extents: the oldest of the domain;
 *  4. else the oldest of all, until an extent is empty and changes hands.
 * For a namespace with a home, step 2 passes over what is at home on other devices, as its pages
 * would be of no use; but not over more than a few dozen of them.
 *
 * All pages or none. -EDQUOT: the domain may not have them. -ENOSPC: there is no room. -ENOMEM. If
 * it is plain from the start that eviction cannot help, nothing is evicted; else idle slices may be
 * gone though the call failed.
 */
MUST_CHECK int evict_take(const struct store_namespace *namespace, uint32_t first_row,
			  struct store_slice *ret, uint32_t n);
/* Is there no page for the holding unless something is evicted? */
bool evict_is_due(struct store_holding *h);
/* Evicts everything that nobody uses. */
void evict_all(struct store *s);

#endif
