/*
 * forget.c - the deleter of nodes that have lower tiers below them.
 *
 * Of a node the last slice goes first, so that what stays is a first part of every path. Nobody
 * stands where something is forgotten; wants and pins that end there end, as what they keep cannot
 * be kept. A node of which nothing stays is cut off the tree, and its namespace with it if that was
 * all.
 */
#include "forget.h"

#include "dirty.h"
#include "kvstore/tree/namespace.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/pin.h"
#include "kvstore/tree/radix.h"
#include "want.h"

#include <assert.h>

static void node_cut(struct store *s, struct store_node *n)
{
	struct store_namespace *namespace = n->namespace;

	dirty_remove(s->tiers, n);
	radix_cut(n);
	s->stats.nodes_evicted++;
	namespace_prune(namespace);
}

void forget_last(struct store *s, struct store_node *n)
{
	assert(LIST_EMPTY(&n->children) && n->n_users == 0);
	s->tiers->stats.slices_dropped++;
	if (n->n_slices == 1)
		node_cut(s, n);
	else
		radix_drop_last(n);
}

/* Who wants or has pinned more of a node than n_path. */
static void users_end(struct store *s, struct store_node *n, uint32_t n_path)
{
	struct store_seq *q = n->residency ? LIST_FIRST(&n->residency->wants) : NULL;
	struct store_pin *p = LIST_FIRST(&n->pins);

	while (q) {
		struct store_seq *next = LIST_NEXT(q, at_want);
		if (q->want_path > n_path)
			want_end(s, q);
		q = next;
	}
	while (p) {
		struct store_pin *next = LIST_NEXT(p, at_node);
		if (p->n_path > n_path)
			pin_end(s, p);
		p = next;
	}
	s->epoch++;
}

static void children_cut(struct store *s, struct store_node *top)
{
	struct store_node *n = top;

	while (!LIST_EMPTY(&top->children)) {
		while (!LIST_EMPTY(&n->children))
			n = LIST_FIRST(&n->children);
		struct store_node *parent = n->parent;
		users_end(s, n, n->pos);
		s->tiers->stats.slices_dropped += n->n_slices;
		node_cut(s, n);
		n = parent;
	}
}

void forget_from(struct store *s, struct store_node *n, uint32_t n_slices)
{
	uint32_t left = n->n_slices;

	children_cut(s, n);
	users_end(s, n, n->pos + node_tokens_of(n, n_slices));
	if (n_slices == 0) {
		s->tiers->stats.slices_dropped += left;
		node_cut(s, n);
		return;
	}
	for (; left > n_slices; left--) {
		s->tiers->stats.slices_dropped++;
		radix_drop_last(n);
	}
}

void forget_all(struct store *s)
{
	while (!TAILQ_EMPTY(&s->all_namespaces)) {
		struct store_namespace *namespace = TAILQ_FIRST(&s->all_namespaces);
		namespace->root->n_users++; /* so that it outlives its last child */
		children_cut(s, namespace->root);
		namespace->root->n_users--;
		namespace_prune(namespace);
	}
}
