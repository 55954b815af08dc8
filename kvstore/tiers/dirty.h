/*
 * dirty.h - nodes whose paths are to be in the file, in the order of asking.
 */
#ifndef COPPICE_KVSTORE_DIRTY_H
#define COPPICE_KVSTORE_DIRTY_H

#include "state.h"

/* The path to a node, which has a record of residency, shall be in the file, if there is one. */
void dirty_add(struct store *s, struct store_node *n);
/* The same for all nodes below a root. */
void dirty_add_all(struct store *s, struct store_node *root);
/* Not any more, or never: of a node that is not dirty nothing changes. */
void dirty_remove(struct tiers *t, struct store_node *n);
/* Of what is to be written nothing is any more; what the file has it keeps. error: why nothing ever
 * is; 0: until something else is to be. */
void dirty_clear(struct tiers *t, int error);

#endif
