/*
 * restore.h - the way back after a restart: what a file holds joins the tree, as nodes that are in
 * the file alone.
 */
#ifndef COPPICE_KVSTORE_RESTORE_H
#define COPPICE_KVSTORE_RESTORE_H

#include "state.h"

/* Images of no use leave the file. -ENOMEM: nothing has joined the tree. */
MUST_CHECK int restore_all(struct store *s, struct store_tiers_found *ret);

#endif
