/*
 * spill.h - the way down: what leaves the device goes to host memory, what leaves host memory stays in the file if it is
 * there, and what leaves the last tier is gone. Always the last slice of the oldest leaf.
 */
#ifndef COPPICE_KVSTORE_SPILL_H
#define COPPICE_KVSTORE_SPILL_H

#include "tiers.h"

/* The last slice that an idle node has on the device leaves it; nothing below the node is there. Returns the pages that were
 * freed, 0 or 1. The node may be gone. */
uint32_t spill_slice(struct store *s, struct store_node *n);

/* Some slice leaves a tier to make room for a page of the holding's: of the domain, if that is over its limit, else of the
 * model if it has any, else of all. Not of the path to avoid. False: nothing could go. */
bool spill_reclaim(struct store *s, struct store_holding *h, enum store_tier tier, bool of_domain,
		   const struct store_node *avoid);

#endif
