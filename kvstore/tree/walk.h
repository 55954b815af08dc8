/*
 * walk.h - reports of the tree in pieces, while the tree changes.
 *
 * A cursor names one of a few walkers: a random number, that only who began the walk knows. Each
 * walker knows the node that comes next; a node that goes hands its walkers on to its successor, a
 * node that is split to the new upper part. When more walks are under way than there are walkers,
 * the longest idle one ends early.
 */
#ifndef COPPICE_KVSTORE_WALK_H
#define COPPICE_KVSTORE_WALK_H

#include "core.h"

void walk_skip(struct walk *walk, const struct store_node *n);

/* A node is about to go: an empty root, a leaf, or one that its parent takes in, children and
 * all. */
static inline void walk_cut(struct walk *walk, const struct store_node *n)
{
	if (walk->n_walkers > 0)
		walk_skip(walk, n);
}
/* A node has a new node above that holds its first part. */
void walk_split(struct walk *walk, const struct store_node *n, struct store_node *upper);

#endif
