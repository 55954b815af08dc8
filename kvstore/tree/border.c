/*
 * border.c - a ring of nodes whose ends are to be looked at, each in it once at most.
 *
 * The ring has ids: a node that goes leaves nothing behind but an id that is nobody's.
 */
#include "border.h"

#include "node.h"

void border_add(struct store_node *n)
{
	struct borders *b = &node_store(n)->borders;

	if (n->noted || b->n == BORDERS_MAX)
		return;
	n->noted = true;
	b->ids[(b->first + b->n++) % BORDERS_MAX] = n->id;
}

struct store_node *border_next(struct store *s)
{
	struct borders *b = &s->borders;

	while (b->n > 0) {
		struct store_node *n = node_by_id(s, b->ids[b->first]);
		b->first = (b->first + 1) % BORDERS_MAX;
		b->n--;
		if (n) {
			n->noted = false;
			return n;
		}
	}
	return NULL;
}
