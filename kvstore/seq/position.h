/*
 * position.h - where a sequence stands in its tree.
 */
#ifndef COPPICE_KVSTORE_POSITION_H
#define COPPICE_KVSTORE_POSITION_H

#include "kvstore/tree/claim.h"
#include "kvstore/tree/collapse.h"

/* Every call that changes something begins here: leases that are over end, and where nobody has
 * looked at a node yet, some may become one. */
static inline struct store *position_enter(const struct store_seq *q, uint64_t now_ns)
{
	struct store *s = node_store(q->node);

	pages_release(&s->pages);
	claim_expire(s, now_ns);
	collapse_some(s);
	return s;
}

/* At or below on the same path. The claim stays where it was. */
void position_move_down(struct store_seq *q, struct store_node *n, uint32_t n_path);
/* At or above. The claim has ended. */
void position_move_up(struct store_seq *q, struct store_node *n, uint32_t n_path);
/* Nobody else stands in the node. */
bool position_is_alone(const struct store_seq *q, const struct store_node *n);

#endif
