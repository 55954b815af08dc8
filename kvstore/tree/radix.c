/*
 * radix.c - the tree; see radix.h.
 *
 * Children are found in one index of the whole store, keyed by the parent's id and the first token.
 * Each node also remembers the child that was matched last, so that a path that is followed again
 * and again costs no hashing.
 */
#include "radix.h"

#include "border.h"
#include "claim.h"
#include "height.h"
#include "kvstore/base/tokens.h"
#include "residency.h"
#include "lru.h"
#include "node.h"
#include "walk.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static uint64_t child_hash(const struct store *s, const struct store_node *parent, uint32_t token)
{
	return index_hash(s->seed, parent->id, token);
}

static struct store_node *child_lookup(const struct store *s, const struct store_node *parent,
				       uint32_t token)
{
	struct index_link *l = index_find(&s->children, child_hash(s, parent, token));

	for (; l; l = index_find_next(l)) {
		struct store_node *n = INDEX_ENTRY(l, struct store_node, link);
		if (n->parent == parent && n->first_token == token)
			return n;
	}
	return NULL;
}

static struct store_node *child_find(const struct store *s, struct store_node *parent,
				     uint32_t token)
{
	struct store_node *n = parent->hint;

	if (n && n->first_token == token)
		return n;
	n = child_lookup(s, parent, token);
	if (n)
		parent->hint = n;
	return n;
}

static void child_link(struct store *s, struct store_node *parent, struct store_node *n)
{
	n->parent = parent;
	index_insert(&s->children, &n->link, child_hash(s, parent, n->first_token));
}

static void child_unlink(struct store *s, struct store_node *n)
{
	index_remove(&s->children, &n->link);
	if (n->parent->hint == n)
		n->parent->hint = NULL;
}

/* How far a match may go in a node. */
static uint32_t match_limit(const struct store_node *n, bool anywhere)
{
	return anywhere ? n->n_tokens : node_device_tokens(n);
}

static inline uint32_t match(struct store *s, struct store_position *at, const uint32_t *tokens,
			     uint32_t n, bool anywhere)
{
	struct store_node *node = at->node;
	uint32_t limit = match_limit(node, anywhere);
	uint32_t offset = at->n_path - node->pos;
	uint32_t done = 0;

	while (done < n) {
		if (offset == node->n_tokens) {
			struct store_node *child = child_find(s, node, tokens[done]);
			if (!child || (limit = match_limit(child, anywhere)) == 0)
				break;
			node = child;
			offset = 0;
			__builtin_prefetch(node->hint);
		}
		uint32_t rest = limit - offset;
		uint32_t common = tokens_common(node->tokens + offset, tokens + done,
						min_u32(rest, n - done));
		done += common;
		offset += common;
		if (offset < node->n_tokens)
			break;
	}
	*at = (struct store_position){.node = node, .n_path = node->pos + offset};
	return done;
}

uint32_t radix_match(struct store *s, struct store_position *at, const uint32_t *tokens, uint32_t n)
{
	/* Without tiers all is on the device, and a match need not read a second line of each
	 * node. */
	return s->tiers ? match(s, at, tokens, n, false) : match(s, at, tokens, n, true);
}

uint32_t radix_match_anywhere(struct store *s, struct store_position *at, const uint32_t *tokens,
			      uint32_t n)
{
	return match(s, at, tokens, n, true);
}

struct store_node *radix_ancestor(struct store_node *n, uint32_t n_path)
{
	while (n->parent && n->pos >= n_path)
		n = n->parent;
	return n;
}

/* Slices of the first n_tokens of a node; returns how many. The last one may be cut. */
static uint32_t slices_head(const struct store_node *n, uint32_t n_tokens, struct store_slice *ret)
{
	uint32_t i = 0;

	for (uint32_t left = n_tokens; left > 0; i++) {
		ret[i] = n->slices[i];
		if (ret[i].count > left)
			ret[i].count = (uint16_t)left;
		left -= ret[i].count;
	}
	return i;
}

int radix_split_prepare(struct store_node *n, uint32_t n_upper, struct store_node **ret_upper)
{
	struct store_node *upper;

	assert(n_upper > 0 && n_upper < n->n_tokens);
	if (!height_may_cut(n))
		return -EMLINK;
	int r = node_new(n->namespace, n_upper, node_slices_to(n, n_upper), &upper);
	if (!r && n->residency && residency_reserve(upper, node_slices_to(n, n_upper))) {
		node_free(node_store(n), upper);
		r = -ENOMEM;
	}
	if (r)
		return r;
	memcpy(upper->tokens, n->tokens, n_upper * sizeof(*n->tokens));
	upper->n_tokens = n_upper;
	upper->n_slices = slices_head(n, n_upper, upper->slices);
	upper->first_token = n->first_token;
	upper->pos = n->pos;
	*ret_upper = upper;
	return 0;
}

/* Takes the upper part off the lower one's arrays. A slice that is cut in two is referred to
 * twice. */
static void split_arrays(struct store_node *n, struct store_node *upper)
{
	const struct store_slice *cut = &upper->slices[upper->n_slices - 1];
	struct store_slice *boundary = &n->slices[upper->n_slices - 1];
	uint32_t gone = upper->n_slices;

	if (cut->count < boundary->count) {
		boundary->first = (uint16_t)(boundary->first + cut->count);
		boundary->count = (uint16_t)(boundary->count - cut->count);
		residency_share(n, gone - 1);
		gone--;
	}
	residency_split(n, upper, gone);
	node_drop_first(n, upper->n_tokens, gone);
	n->first_token = n->tokens[0];
	n->pos += upper->n_tokens;
}

static void split_links(struct store *s, struct store_node *n, struct store_node *upper)
{
	struct store_node *parent = n->parent;
	bool was_hint = parent->hint == n;

	child_unlink(s, n);
	split_arrays(n, upper);
	child_link(s, parent, upper);
	child_link(s, upper, n);
	if (was_hint)
		parent->hint = upper;
	upper->hint = n;
	LIST_INSERT_BEFORE(n, upper, sibling);
	LIST_REMOVE(n, sibling);
	LIST_INSERT_HEAD(&upper->children, n, sibling);
	height_raise(upper, n->height + 1u);
}

/* Who stands at or above the cut stands in the upper node now; they were users of both. */
static void split_users(struct store *s, struct store_node *n, struct store_node *upper)
{
	struct store_seq *q, *next_q;
	struct store_pin *p, *next_p;

	for (q = n->residency ? LIST_FIRST(&n->residency->wants) : NULL; q; q = next_q) {
		next_q = LIST_NEXT(q, at_want);
		if (q->want_path > n->pos)
			continue;
		LIST_REMOVE(q, at_want);
		LIST_INSERT_HEAD(&upper->residency->wants, q, at_want);
		q->want = upper;
		node_detach(n, upper);
	}
	for (q = LIST_FIRST(&n->seqs); q; q = next_q) {
		next_q = LIST_NEXT(q, at_node);
		if (q->n_path > n->pos)
			continue;
		LIST_REMOVE(q, at_node);
		LIST_INSERT_HEAD(&upper->seqs, q, at_node);
		q->node = upper;
		claim_move(s, q);
		node_detach(n, upper);
	}
	for (p = LIST_FIRST(&n->pins); p; p = next_p) {
		next_p = LIST_NEXT(p, at_node);
		if (p->n_path > n->pos)
			continue;
		LIST_REMOVE(p, at_node);
		LIST_INSERT_HEAD(&upper->pins, p, at_node);
		p->node = upper;
		n->n_pinned--;
		node_detach(n, upper);
	}
}

void radix_split(struct store_node *n, struct store_node *upper)
{
	struct store *s = node_store(n);
	struct store_holding *h = n->namespace->holding;
	bool is_pinned = n->n_pinned > 0;

	if (is_pinned)
		node_uncharge_pinned(n);
	if (n->listed)
		h->n_idle_slices -= node_n_device(n);
	split_links(s, n, upper);
	if (n->listed)
		h->n_idle_slices += node_n_device(n) + node_n_device(upper);
	lru_split(n, upper);
	upper->n_users = n->n_users;
	upper->hits = n->hits;
	upper->n_pinned = n->n_pinned;
	split_users(s, n, upper);
	if (is_pinned) {
		node_charge_pinned(upper);
		node_charge_pinned(n);
	}
	walk_split(&s->walk, n, upper);
	s->stats.n_nodes++;
	s->stats.nodes_split++;
	border_note(upper);
}

/* Users of the child's own. */
static void collapse_users(struct store *s, struct store_node *n, struct store_node *child)
{
	struct store_seq *q;
	struct store_pin *p;

	while ((q = LIST_FIRST(&child->seqs))) {
		LIST_REMOVE(q, at_node);
		LIST_INSERT_HEAD(&n->seqs, q, at_node);
		q->node = n;
		claim_move(s, q);
	}
	while ((p = LIST_FIRST(&child->pins))) {
		LIST_REMOVE(p, at_node);
		LIST_INSERT_HEAD(&n->pins, p, at_node);
		p->node = n;
	}
	child->n_users = 0; /* they are the node's already */
}

/* The child's children, in their order. */
static void collapse_links(struct store *s, struct store_node *n, struct store_node *child)
{
	struct store_node *last = NULL, *next;

	child_unlink(s, child);
	LIST_REMOVE(child, sibling);
	n->hint = child->hint;
	while ((next = LIST_FIRST(&child->children))) {
		LIST_REMOVE(next, sibling);
		if (last)
			LIST_INSERT_AFTER(last, next, sibling);
		else
			LIST_INSERT_HEAD(&n->children, next, sibling);
		index_remove(&s->children, &next->link);
		child_link(s, n, next);
		last = next;
	}
	n->height = child->height;
	height_lower(n->parent);
}

static void collapse_arrays(struct store_node *n, const struct store_node *child,
			    enum residency_border border)
{
	uint32_t shared = border == RESIDENCY_IN_PAGE;

	if (shared) {
		struct store_slice *last = &n->slices[n->n_slices - 1];
		last->count = (uint16_t)(last->count + child->slices[0].count);
	}
	memcpy(n->slices + n->n_slices, child->slices + shared,
	       (child->n_slices - shared) * sizeof(*n->slices));
	memcpy(n->tokens + n->n_tokens, child->tokens, child->n_tokens * sizeof(*n->tokens));
	n->n_slices += child->n_slices - shared;
	n->n_tokens += child->n_tokens;
}

static int collapse_reserve(struct store_node *n, const struct store_node *child)
{
	int r = node_reserve(n, child->n_tokens, child->n_slices);

	if (!r && (n->residency || child->residency))
		r = residency_reserve(n, node_n_backed(n) + node_n_backed(child));
	return r;
}

int radix_collapse(struct store_node *n)
{
	struct store_node *child = LIST_FIRST(&n->children);
	enum residency_border border = residency_border(child);
	struct store_holding *h = n->namespace->holding;
	struct store *s = node_store(n);
	int r = collapse_reserve(n, child);

	if (r)
		return r;
	assert(n->n_users == child->n_users && !LIST_NEXT(child, sibling));
	node_uncharge_pinned(n);
	node_uncharge_pinned(child);
	h->n_idle_slices -= n->listed ? node_n_device(n) : 0;
	h->n_idle_slices -= child->listed ? node_n_device(child) : 0;
	walk_cut(&s->walk, child);
	residency_collapse(n, child, border);
	collapse_arrays(n, child, border);
	collapse_links(s, n, child);
	collapse_users(s, n, child);
	lru_collapse(n, child);
	node_charge_pinned(n);
	h->n_idle_slices += n->listed ? node_n_device(n) : 0;
	node_free(s, child);
	s->stats.n_nodes--;
	s->stats.nodes_collapsed++;
	return 0;
}

int radix_split_at(struct store_position *at)
{
	struct store_node *upper;

	if (at->n_path == node_end(at->node))
		return 0;
	int r = radix_split_prepare(at->node, at->n_path - at->node->pos, &upper);
	if (r)
		return r;
	radix_split(at->node, upper);
	at->node = upper;
	return 0;
}

/* In place, if nobody but who asks stands there? */
static bool may_grow(const struct store_node *n, bool lengthen)
{
	return lengthen && n->parent && LIST_EMPTY(&n->children) && n->n_pinned == 0;
}

bool radix_may_go_on(struct store_node *n, bool lengthen)
{
	return may_grow(n, lengthen) || height_may_add_below(n);
}

int radix_graft_prepare(struct store_position at, uint32_t n_tokens, uint32_t n_slices,
			bool lengthen, struct radix_graft *ret)
{
	struct radix_graft g = {.at = at};
	struct store_node *n = at.node;
	bool at_end = at.n_path == node_end(n);

	if (at_end && may_grow(n, lengthen)) {
		*ret = g;
		return node_reserve(n, n_tokens, n_slices);
	}
	if (at_end && !height_may_add_below(n))
		return -EMLINK;
	int r = node_new(n->namespace, n_tokens, n_slices, &g.child);
	if (!r && !at_end)
		r = radix_split_prepare(n, at.n_path - n->pos, &g.upper);
	if (r) {
		node_free(node_store(n), g.child);
		return r;
	}
	*ret = g;
	return 0;
}

struct store_node *radix_graft_commit(struct radix_graft *g, uint32_t first_token)
{
	struct store *s = node_store(g->at.node);
	struct store_node *parent = g->at.node;

	if (g->upper) {
		radix_split(parent, g->upper);
		parent = g->upper;
	}
	if (!g->child)
		return parent;
	g->child->first_token = first_token;
	g->child->pos = node_end(parent);
	child_link(s, parent, g->child);
	LIST_INSERT_HEAD(&parent->children, g->child, sibling);
	height_raise(parent, 1);
	s->stats.n_nodes++;
	return g->child;
}

void radix_drop_last(struct store_node *leaf)
{
	struct store_slice last = leaf->slices[leaf->n_slices - 1];

	assert(LIST_EMPTY(&leaf->children) && leaf->n_slices > 1);
	if (leaf->listed && node_n_device(leaf) == leaf->n_slices)
		leaf->namespace->holding->n_idle_slices--;
	residency_release_last(leaf);
	node_uncharge_pinned(leaf);
	leaf->n_slices--;
	node_charge_pinned(leaf);
	leaf->n_tokens -= last.count;
	node_store(leaf)->stats.n_tokens -= last.count;
	lru_update(leaf);
}

void radix_cut(struct store_node *leaf)
{
	struct store *s = node_store(leaf);
	struct store_holding *h = leaf->namespace->holding;

	const struct store_node *beside = LIST_NEXT(leaf, sibling);

	assert(leaf->n_users == 0);
	walk_cut(&s->walk, leaf);
	lru_leave(leaf);
	child_unlink(s, leaf);
	LIST_REMOVE(leaf, sibling);
	for (uint32_t i = leaf->n_slices; i-- > 0;)
		if (leaf->residency)
			residency_release(leaf, i);
		else
			pages_drop(&s->pages, &h->pages, leaf->slices[i]);
	s->stats.n_tokens -= leaf->n_tokens;
	s->stats.n_nodes--;
	if (!height_is_by(leaf->parent, beside))
		height_lower(leaf->parent);
	if (border_is_idle(leaf->parent))
		border_add(leaf->parent);
	node_free(s, leaf);
}
