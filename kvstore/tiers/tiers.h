/*
 * tiers.h - the lower tiers' end; their beginning and their turn are in tier.h.
 */
#ifndef COPPICE_KVSTORE_TIERS_H
#define COPPICE_KVSTORE_TIERS_H

#include "state.h"

/* Ends what is under way, and the trees with it; what is in the file stays there. Blocks. Without
 * tiers both do nothing. */
void tiers_stop(struct store *s);
void tiers_free(struct store *s);

#endif
