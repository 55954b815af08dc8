/*
 * dirty.c - the list of nodes whose paths are to be written to the file.
 *
 * A node is in it at most once, and only while something of it is not in the file. Once the file
 * cannot be written any more the list stays empty.
 */
#include "dirty.h"

#include "kvstore/tree/border.h"
#include "kvstore/tree/residency.h"

#include <string.h>

void dirty_add(struct store *s, struct store_node *n)
{
	struct tiers *t = s->tiers;

	if (!t->places->file || t->stats.error || n->residency->dirty ||
	    n->residency->n_backed == n->n_slices)
		return;
	n->residency->dirty = true;
	TAILQ_INSERT_TAIL(&t->dirty, n, residency->dirty_order);
	t->n_dirty++;
}

void dirty_add_all(struct store *s, struct store_node *root)
{
	struct store_node *n = root;

	for (;;) {
		if (!LIST_EMPTY(&n->children)) {
			n = LIST_FIRST(&n->children);
		} else {
			while (n != root && !LIST_NEXT(n, sibling))
				n = n->parent;
			if (n == root)
				return;
			n = LIST_NEXT(n, sibling);
		}
		if (!residency_reserve(n, 0))
			dirty_add(s, n);
	}
}

void dirty_remove(struct tiers *t, struct store_node *n)
{
	if (!n->residency || !n->residency->dirty)
		return;
	TAILQ_REMOVE(&t->dirty, n, residency->dirty_order);
	n->residency->dirty = false;
	t->n_dirty--;
	border_note(n);
}

void dirty_clear(struct tiers *t, int error)
{
	if (error && !t->stats.error) {
		t->stats.error = strerrordesc_np(-error);
		t->places->max_passing = 0;
	}
	while (!TAILQ_EMPTY(&t->dirty))
		dirty_remove(t, TAILQ_FIRST(&t->dirty));
}
