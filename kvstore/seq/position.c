/*
 * position.c - sequences move along their paths.
 *
 * A sequence is in the list of the node in which its path ends, and counts as a user of that node
 * and of all above it: who moves it moves both.
 */
#include "position.h"

#include "kvstore/tree/border.h"
#include "kvstore/tree/node.h"

static void position_set(struct store_seq *q, struct store_node *n, uint32_t n_path)
{
	if (q->node != n) {
		LIST_REMOVE(q, at_node);
		LIST_INSERT_HEAD(&n->seqs, q, at_node);
		q->node = n;
	}
	q->n_path = n_path;
}

void position_move_down(struct store_seq *q, struct store_node *n, uint32_t n_path)
{
	struct store_node *above = q->node;

	node_attach(n, above);
	position_set(q, n, n_path);
	border_note(above);
}

void position_move_up(struct store_seq *q, struct store_node *n, uint32_t n_path)
{
	struct store_node *below = q->node;

	q->path_version++;
	position_set(q, n, n_path);
	node_detach(below, n);
	border_note(below);
}

bool position_is_alone(const struct store_seq *q, const struct store_node *n)
{
	const struct store_seq *first = LIST_FIRST(&n->seqs);

	return !first || (first == q && !LIST_NEXT(first, at_node));
}
