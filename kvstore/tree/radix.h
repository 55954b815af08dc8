/*
 * radix.h - the tree: finding a child, matching tokens, splitting a node, grafting a run, cutting a
 * leaf off.
 *
 * A split keeps the lower part's identity, so that its children stay as they are; who stands at or
 * above the cut goes to the new upper node. A collapse keeps the upper node's. No path
 * gets more nodes than it may (height.h).
 */
#ifndef COPPICE_KVSTORE_RADIX_H
#define COPPICE_KVSTORE_RADIX_H

#include "core.h"

/* Follows tokens down from a position; returns how many are in the tree and on the device. */
uint32_t radix_match(struct store *s, struct store_position *at, const uint32_t *tokens,
		     uint32_t n);
/* The same for tokens in any tier. */
uint32_t radix_match_anywhere(struct store *s, struct store_position *at, const uint32_t *tokens,
			      uint32_t n);
/* The node n_path tokens deep on the way to the node. */
struct store_node *radix_ancestor(struct store_node *n, uint32_t n_path);

/* The future upper node of a split that leaves n_upper tokens above (0 < n_upper < n_tokens).
 * -ENOMEM; -EMLINK: a path would have too many nodes. */
MUST_CHECK int radix_split_prepare(struct store_node *n, uint32_t n_upper,
				   struct store_node **ret_upper);
void radix_split(struct store_node *n, struct store_node *upper);
/* Both, where no node ends there: it is at the end of one then. 0, or as
 * radix_split_prepare. */
MUST_CHECK int radix_split_at(struct store_position *at);

/* Room for a run that joins the tree at a position. */
struct radix_graft {
	struct store_position at;
	struct store_node *upper; /* owned until commit; NULL: no split */
	struct store_node *child; /* owned until commit; NULL: the run lengthens at.node */
};

/* Would a run have room at the node's end, as things are? lengthen: as below. */
bool radix_may_go_on(struct store_node *n, bool lengthen);
/* lengthen: nobody but the caller stands at the node, so that it may grow in place if it is a leaf
 * that no pin keeps. As radix_split_prepare. */
MUST_CHECK int radix_graft_prepare(struct store_position at, uint32_t n_tokens, uint32_t n_slices,
				   bool lengthen, struct radix_graft *ret);
/* Links what was prepared; returns the node to which the run is to be appended, first_token its
 * first. */
struct store_node *radix_graft_commit(struct radix_graft *g, uint32_t first_token);

/* The node's only child becomes part of it, and what hangs below that hangs from the node. They
 * have no users but the child's, who do not stand in its middle, and nothing is under way for
 * either. -ENOMEM: all is as it was. */
MUST_CHECK int radix_collapse(struct store_node *n);

/* Of a leaf the last of several slices goes; nobody stands in it. */
void radix_drop_last(struct store_node *leaf);
/* Unlinks a leaf that nobody uses and frees it, slices and all. */
void radix_cut(struct store_node *leaf);

#endif
