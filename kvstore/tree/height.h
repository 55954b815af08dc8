/*
 * height.h - how many nodes a path has, below each of its own.
 *
 * No path has more than max_path_nodes nodes, as every walk over it takes as long. A node's height
 * is how many follow it at most: raised by who lengthens a path, and lowered as far up as a few
 * looks at other children reach, so that it may be too high. Before a cut is refused it is looked
 * at again, with all children. A root's tells without a walk that there is room. Where it has many
 * children it stays too high when the longest path goes: each cut then walks to the root, which is
 * no further than its path is long, and only below that root.
 */
#ifndef COPPICE_KVSTORE_HEIGHT_H
#define COPPICE_KVSTORE_HEIGHT_H

#include "core.h"

/* Paths go on from the node through so many nodes. */
void height_raise(struct store_node *n, uint32_t height);
/* Something below the node is gone. */
void height_lower(struct store_node *n);
/* The node is as high as it is by this child (NULL: there is none), whatever else goes. */
static inline bool height_is_by(const struct store_node *n, const struct store_node *child)
{
	return child && child->height + 1u == n->height;
}

/* Is no path of the tree as long as it may be? The root's height says so. */
static inline bool height_has_room(const struct store_node *n)
{
	return n->namespace->root->height < node_store(n)->config.max_path_nodes;
}
/* Where that is not so: may paths through the node, and what is below it if that goes down too,
 * have one more? */
bool height_may_lengthen(struct store_node *n, bool with_below);
/* May paths have one node more: where the node is cut, with all that is below it, or behind its
 * end? If not, borders above that are of no use are noted. */
static inline bool height_may_cut(struct store_node *n)
{
	return height_has_room(n) || height_may_lengthen(n, true);
}
static inline bool height_may_add_below(struct store_node *n)
{
	return height_has_room(n) || height_may_lengthen(n, false);
}

#endif
