/*
 * collapse.c - which borders go; see collapse.h.
 *
 * The work of a call is bounded: so many borders looked at, so many tokens copied. The upper node
 * stays, as what is long grows at its end, in room that doubles; so a chain of chunks is copied
 * twice at most, not once a chunk.
 */
#include "collapse.h"

#include "border.h"
#include "radix.h"
#include "residency.h"

#define LOOKS_AT_ONCE 4u
#define TOKENS_AT_ONCE (64u << 10) /* of children, copied */
#define MAX_TOKENS (256u << 10) /* of a node that others join */
#define MAX_CHILDREN 64u /* of the child, that get another parent */
#define MAX_USERS 256u /* of the child's own, that get another node */

static bool is_busy(const struct store_node *n)
{
	const struct store_residency *res = n->residency;

	return res && (res->n_rising > 0 || res->n_reading > 0 || res->n_writing > 0 ||
		       res->dirty || !LIST_EMPTY(&res->wants));
}

static bool has_few_children(const struct store_node *n)
{
	const struct store_node *child;
	uint32_t n_children = 0;

	LIST_FOREACH (child, &n->children, sibling)
		if (++n_children > MAX_CHILDREN)
			return false;
	return true;
}

/* Few users of its own, and none in its middle. */
static bool has_few_users(const struct store_node *n)
{
	const struct store_seq *q;
	const struct store_pin *p;
	uint32_t n_users = 0;

	LIST_FOREACH (q, &n->seqs, at_node)
		if (q->n_path < node_end(n) || ++n_users > MAX_USERS)
			return false;
	LIST_FOREACH (p, &n->pins, at_node)
		if (++n_users > MAX_USERS)
			return false;
	return true;
}

static bool may_collapse(const struct store_node *n)
{
	const struct store_node *child = LIST_FIRST(&n->children);

	return border_is_idle(n) && !is_busy(n) && !is_busy(child) &&
	       child->n_tokens <= TOKENS_AT_ONCE && n->n_tokens + child->n_tokens <= MAX_TOKENS &&
	       has_few_children(child) && has_few_users(child) &&
	       residency_border(child) != RESIDENCY_APART;
}

bool collapse_look(struct store *s)
{
	uint32_t n_copied = 0;

	for (uint32_t i = 0; i < LOOKS_AT_ONCE && n_copied < TOKENS_AT_ONCE; i++) {
		struct store_node *n = border_next(s);
		if (!n)
			return false;
		if (!may_collapse(n))
			continue;
		uint32_t n_before = n->n_tokens;
		if (radix_collapse(n))
			continue;
		n_copied += n->n_tokens - n_before;
		border_note(n);
	}
	return s->borders.n > 0;
}
