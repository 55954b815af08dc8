/*
 * validate_tiers.h - the part of store_validate that is about what lies below the device.
 */
#ifndef COPPICE_KVSTORE_VALIDATE_TIERS_H
#define COPPICE_KVSTORE_VALIDATE_TIERS_H

#include "note.h"

MUST_CHECK int validate_tiers_begin(struct validate *v); /* 0 or -ENOMEM */
void validate_tiers_done(struct validate *v);
/* A node's part below the device, and where its slices are. */
MUST_CHECK int validate_residency(struct validate *v, const struct store_node *n);
/* A sequence's want. */
MUST_CHECK int validate_want(struct validate *v, const struct store_node *n,
			     const struct store_seq *q);
/* After the trees: moves, places, who is charged, lists. */
MUST_CHECK int validate_tiers(struct validate *v);
/* Pages that a holding's moves hold. */
uint64_t validate_moving_pages(const struct validate *v, const struct store_holding *h);

#endif
