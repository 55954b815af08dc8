/*
 * live.h - the live extension of a sequence: ids and rows that are its own until they join the
 * tree.
 */
#ifndef COPPICE_KVSTORE_LIVE_H
#define COPPICE_KVSTORE_LIVE_H

#include "kvstore/tree/core.h"

/* Of the live tokens only [first, end) keep their rows; what else there is of the extension is the
 * caller's. */
void live_keep(struct store_seq *q, uint32_t first, uint32_t end);
/* The extension goes, and its rows with it. None: nothing happens. */
void live_drop(struct store_seq *q);

#endif
