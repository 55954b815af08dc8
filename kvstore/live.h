/*
 * live.h - the live extension of a sequence: ids and rows that are its own until they join the tree.
 */
#ifndef COPPICE_KVSTORE_LIVE_H
#define COPPICE_KVSTORE_LIVE_H

#include "core.h"

/* The extension goes, and its rows with it. None: nothing happens. */
void live_drop(struct store_seq *q);

#endif
