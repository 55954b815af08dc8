/*
 * node.h - one node: its birth, its token run and slices, its users, and the path to it.
 *
 * A node is listed exactly while nobody uses it or anything below it. Users are counted along the
 * whole path, so that the walk from a user that leaves up to the root lists every node that falls
 * idle, children before parents.
 */
#ifndef COPPICE_KVSTORE_NODE_H
#define COPPICE_KVSTORE_NODE_H

#include "core.h"

#define NODE_SLAB_NODES 256u /* in a chunk */

void node_slab_init(struct node_slab *slab);
void node_slab_done(struct node_slab *slab);
/* NULL: there is no such node. A number is the node's as long as it lives, then another's; an id is
 * nobody else's ever. */
struct store_node *node_by_number(const struct store *s, uint64_t number);
struct store_node *node_by_id(const struct store *s, uint64_t id);

/* An empty node with room, linked to nothing. -ENOMEM. */
MUST_CHECK int node_new(struct store_namespace *namespace, uint32_t n_tokens, uint32_t n_slices,
			struct store_node **ret);
/* The node must be linked to nothing; its slices are dropped elsewhere. NULL is fine. */
void node_free(struct store *s, struct store_node *n);
/* Room for so many more. -ENOMEM. */
MUST_CHECK int node_reserve(struct store_node *n, uint32_t n_tokens, uint32_t n_slices);
/* Appends a run with its slices, which change hands. Room must be there. */
void node_append(struct store_node *n, const uint32_t *ids, uint32_t n_ids,
		 const struct store_slice *slices, uint32_t n_slices);

/* Takes the first tokens and slices off its arrays, which shrink where little is left. Who calls it
 * sees to what refers to them. */
void node_drop_first(struct store_node *n, uint32_t n_tokens, uint32_t n_slices);

/* Tokens of the first n_slices of a node. */
uint32_t node_tokens_of(const struct store_node *n, uint32_t n_slices);
/* How many slices the first n_tokens of a node touch. */
uint32_t node_slices_to(const struct store_node *n, uint32_t n_tokens);

/* The path to a node from below the root on, in the store's path.nodes; returns its length, 0 where
 * there is no memory. */
MUST_CHECK uint32_t node_path(struct store *s, struct store_node *n);
/* How long that is. */
uint32_t node_depth(const struct store_node *n);

/* What pins keep of the node, which its domain is charged: before its slices change, and after.
 * Nothing where none does. */
void node_uncharge_pinned(struct store_node *n);
void node_charge_pinned(struct store_node *n);

/* One user more, or fewer, from the node up to stop, exclusive; NULL: up to the root. */
void node_attach(struct store_node *n, const struct store_node *stop);
void node_detach(struct store_node *n, const struct store_node *stop);

#endif
