/*
 * forget.h - what leaves the last tier that had it: slices, nodes and what hangs below them.
 */
#ifndef COPPICE_KVSTORE_FORGET_H
#define COPPICE_KVSTORE_FORGET_H

#include "state.h"

/* Of an idle leaf the last slice goes, the node with the only one. */
void forget_last(struct store *s, struct store_node *n);
/* Of a node only the first n_slices stay, and nothing below it; nobody stands beyond. Wants and
 * pins there end. The node goes if nothing of it stays. */
void forget_from(struct store *s, struct store_node *n, uint32_t n_slices);
/* All trees go. Nobody uses them. */
void forget_all(struct store *s);

#endif
