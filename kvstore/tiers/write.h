/*
 * write.h - the way into the file: paths to nodes that have left the device, from the root on.
 */
#ifndef COPPICE_KVSTORE_WRITE_H
#define COPPICE_KVSTORE_WRITE_H

#include "tiers.h"

/* The path to a node, which has a part, shall be in the file, if there is one. */
void write_want(struct store *s, struct store_node *n);
/* The same for all nodes below a root. */
void write_want_all(struct store *s, struct store_node *root);
/* Begins writes while there is room for moves. */
void write_begin_moves(struct store *s);

#endif
