/*
 * border.c - a ring of nodes whose ends are to be looked at, each in it once at most.
 *
 * The ring has ids: a node that goes leaves nothing behind but an id that is nobody's.
 */
#include "border.h"

#include "node.h"

static void end_note(struct store *s, struct store_node *n)
{
	struct borders *b = &s->borders;

	if (n->noted || !border_is_idle(n) || b->n == BORDERS_MAX)
		return;
	n->noted = true;
	b->ids[(b->first + b->n++) % BORDERS_MAX] = n->id;
}

void border_note(struct store_node *n)
{
	struct store *s = node_store(n);

	end_note(s, n);
	if (n->parent)
		end_note(s, n->parent);
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
