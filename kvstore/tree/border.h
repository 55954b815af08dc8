/*
 * border.h - ends of nodes that may be of no use any more.
 *
 * Where a node ends somebody stands, or more than one way goes on; when neither is so any more, the
 * node and its only child can become one (collapse.h). Whoever lets go of a border notes it here;
 * that costs a look at two nodes.
 */
#ifndef COPPICE_KVSTORE_BORDER_H
#define COPPICE_KVSTORE_BORDER_H

#include "core.h"

/* Has the node an only child, and nobody whose path ends in the node itself? */
static inline bool border_is_idle(const struct store_node *n)
{
	const struct store_node *child = n->parent ? LIST_FIRST(&n->children) : NULL;

	return child && !LIST_NEXT(child, sibling) && n->n_users == child->n_users;
}

/* An idle one is to be looked at. Where too many are noted already this one is forgotten, until
 * something happens there again. */
void border_add(struct store_node *n);

/* Something has let go of the node, or of its end. */
static inline void border_note(struct store_node *n)
{
	if (border_is_idle(n))
		border_add(n);
	if (n->parent && border_is_idle(n->parent))
		border_add(n->parent);
}

/* One that was noted, which is not any more; NULL: there is none. */
struct store_node *border_next(struct store *s);

#endif
