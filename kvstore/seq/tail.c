/*
 * tail.c - tails: appended to, cut, joined to the tree, and moved out of the way.
 *
 * A tail begins at the end of a node, and its rows are the sequence's alone. It joins the tree in
 * host memory: places are taken for all of it and the copies begun before anything changes, so that
 * it joins whole or stays whole.
 */
#include "tail.h"
#include "live_rows.h"
#include "position.h"
#include "proto/arith.h"
#include "proto/cleanup.h"
#include "kvstore/tiers/dirty.h"
#include "kvstore/tiers/forget.h"
#include "kvstore/tree/places.h"
#include "kvstore/tree/claim.h"
#include "kvstore/tree/residency.h"
#include "kvstore/tiers/move.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/radix.h"
#include "kvstore/tiers/demote.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool tail_is_resident(const struct store_seq *q)
{
	return q->tail.n == 0 && q->n_path <= q->node->pos + node_device_tokens(q->node);
}

uint32_t tail_last_page(const struct store_seq *q)
{
	return q->tail.n > 0 ? q->tail.slots[q->tail.n_slots - 1].page : PAGES_NONE;
}

/* It has one now, or has none any more. */
static void tail_note(struct store_seq *q)
{
	struct tiers *t = node_store(q->node)->tiers;

	if (q->tail.listed == (q->tail.n > 0))
		return;
	q->tail.listed = q->tail.n > 0;
	if (q->tail.listed)
		TAILQ_INSERT_TAIL(&t->tails, q, tail.order);
	else
		TAILQ_REMOVE(&t->tails, q, tail.order);
}

/* ---- what is appended ----------------------------------------------------------------------- */

int tail_reserve(struct store_seq *q, uint32_t n)
{
	struct seq_tail *t = &q->tail;
	uint32_t n_slots = q->n_slots;

	if (t->n + n > t->ids_capacity) {
		uint32_t capacity = max_u32(2 * t->ids_capacity, t->n + n);
		uint32_t *ids = realloc(t->ids, capacity * sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		t->ids = ids;
		t->ids_capacity = capacity;
	}
	if (t->n_slots + n_slots > t->slots_capacity) {
		uint32_t capacity = max_u32(2 * t->slots_capacity, t->n_slots + n_slots);
		struct store_slice *slots = realloc(t->slots, capacity * sizeof(*slots));
		if (!slots)
			return -ENOMEM;
		t->slots = slots;
		t->slots_capacity = capacity;
	}
	return 0;
}

/* Rows that go on in the last slot's page are part of it. */
static void slot_append(struct store_seq *q, struct store_slice slot)
{
	struct store_model *m = q->node->namespace->holding->model;
	struct seq_tail *t = &q->tail;
	struct store_slice *last = t->n_slots > 0 ? &t->slots[t->n_slots - 1] : NULL;

	if (!last || last->page != slot.page) {
		t->slots[t->n_slots++] = slot;
		return;
	}
	assert(last->first + last->count == slot.first);
	last->count = (uint16_t)(last->count + slot.count);
	pages_at(&m->store->pages, &m->lent, slot.page)->n_slices--;
}

void tail_append(struct store_seq *q, const uint32_t *ids, uint32_t n)
{
	struct seq_tail *t = &q->tail;

	live_rows_keep(q, 0, n);
	memcpy(t->ids + t->n, ids, n * sizeof(*ids));
	t->n += n;
	for (uint32_t i = 0; i < q->n_slots; i++)
		slot_append(q, q->slots[i]);
	live_rows_end(q);
	q->path_version++;
	tail_note(q);
}

/* ---- what goes ------------------------------------------------------------------------------ */

void tail_cut(struct store_seq *q, uint32_t n)
{
	struct store_holding *h = q->node->namespace->holding;
	struct pages *pages = &h->model->store->pages;
	struct seq_tail *t = &q->tail;

	while (t->n > n) {
		struct store_slice *last = &t->slots[t->n_slots - 1];
		uint32_t n_gone = min_u32(t->n - n, last->count);
		struct store_slice gone = {last->page,
					   (uint16_t)(last->first + last->count - n_gone),
					   (uint16_t)n_gone};
		t->n -= n_gone;
		if (n_gone == last->count) {
			pages_drop(pages, &h->pages, *last);
			t->n_slots--;
			continue;
		}
		pages_give_back(pages, h->pages.lent, gone);
		last->count = (uint16_t)(last->count - n_gone);
	}
	q->path_version++;
	tail_note(q);
}

void tail_done(struct store_seq *q)
{
	if (q->tail.n > 0 && tail_join(q))
		tail_cut(q, 0);
	free(q->tail.ids);
	free(q->tail.slots);
}

/* ---- joining the tree ----------------------------------------------------------------------- */

/* The first node of a path that is not in memory, all of it. */
static struct store_node *first_not_in_memory(struct store_node *n)
{
	struct store_node *first = NULL;

	for (; n->parent; n = n->parent)
		if (node_n_memory(n) < n->n_slices)
			first = n;
	return first;
}

/* How far the tree has the tail's tokens by now, from somebody else. Of what is in the file alone
 * nobody may stand in: it makes room for the own. */
static uint32_t tail_match(struct store *s, const struct store_seq *q, struct store_position *ret)
{
	for (;;) {
		struct store_position at = {.node = q->node, .n_path = q->n_path};
		uint32_t n = radix_match_anywhere(s, &at, q->tail.ids, q->tail.n);
		struct store_node *missing = n > 0 ? first_not_in_memory(at.node) : NULL;

		*ret = at;
		if (!missing)
			return n;
		forget_from(s, missing, node_n_memory(missing));
	}
}

/* Takes places for slots and begins to copy there. Returns how many were had. */
static uint32_t tail_copy_down(struct store *s, struct store_holding *h,
			       const struct store_slice *slots, uint32_t n, uint32_t *ret)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t token;
		ret[i] = demote_take(s, h, STORE_HOST, NULL);
		if (ret[i] == TIER_NONE)
			return i;
		if (move_down(s, h, slots[i], ret[i], &token)) {
			places_unref(s, STORE_HOST, ret[i]);
			return i;
		}
	}
	return n;
}

/* The tail, which lies in these places by now, becomes the node's last. Room is there. */
static void node_append_tail(struct store *s, struct store_node *n, const struct seq_tail *t,
			     const uint32_t *places)
{
	memcpy(n->tokens + n->n_tokens, t->ids, t->n * sizeof(*t->ids));
	n->n_tokens += t->n;
	n->first_token = n->tokens[0];
	s->stats.n_tokens += t->n;
	for (uint32_t i = 0; i < t->n_slots; i++) {
		n->slices[n->n_slices] = t->slots[i];
		n->slices[n->n_slices++].page = places[i];
	}
	n->residency->n_memory = n->n_slices;
	dirty_add(s, n);
}

/* The rest of the tail, which the tree has not, joins it at a position. */
static int rest_graft(struct store_seq *q, struct store_position at, const uint32_t *places)
{
	struct store *s = node_store(q->node);
	struct seq_tail *t = &q->tail;
	struct radix_graft graft;
	int r = radix_graft_prepare(at, t->n, t->n_slots, position_is_alone(q, at.node), &graft);

	if (r)
		return r;
	struct store_node *n = graft.child ? graft.child : at.node;
	r = residency_reserve(n, 0);
	if (r) {
		node_free(s, graft.child);
		node_free(s, graft.upper);
		return r;
	}
	n = radix_graft_commit(&graft, t->ids[0]);
	position_move_down(q, n, at.n_path + t->n);
	node_append_tail(s, n, t, places);
	return 0;
}

/* The tail's first n tokens go, as the tree has them. */
static void tail_pass(struct store_seq *q, uint32_t n)
{
	struct store_holding *h = q->node->namespace->holding;
	struct seq_tail *t = &q->tail;
	uint32_t n_gone = 0;

	t->n -= n;
	memmove(t->ids, t->ids + n, t->n * sizeof(*t->ids));
	for (; n > 0 && t->slots[n_gone].count <= n; n -= t->slots[n_gone++].count)
		pages_drop(&h->model->store->pages, &h->pages, t->slots[n_gone]);
	t->n_slots -= n_gone;
	memmove(t->slots, t->slots + n_gone, t->n_slots * sizeof(*t->slots));
	if (n > 0) {
		t->slots[0].first = (uint16_t)(t->slots[0].first + n);
		t->slots[0].count = (uint16_t)(t->slots[0].count - n);
	}
}

static int rest_demote(struct store_seq *q, struct store_position at)
{
	struct store *s = node_store(q->node);
	struct store_holding *h = q->node->namespace->holding;
	struct seq_tail *t = &q->tail;
	CLEANUP_FREE uint32_t *places = malloc(t->n_slots * sizeof(*places));
	int r = places ? 0 : -ENOMEM;
	uint32_t n = places ? tail_copy_down(s, h, t->slots, t->n_slots, places) : 0;

	if (!r && n < t->n_slots)
		r = -ENOSPC;
	if (!r)
		r = rest_graft(q, at, places);
	while (r && n > 0)
		places_unref(s, STORE_HOST, places[--n]);
	if (r)
		return r;
	for (uint32_t i = 0; i < t->n_slots; i++)
		pages_drop(&s->pages, &h->pages, t->slots[i]);
	t->n = t->n_slots = 0;
	return 0;
}

int tail_join(struct store_seq *q)
{
	struct store *s = node_store(q->node);
	struct store_position at;

	if (q->tail.n == 0)
		return 0;
	assert(q->n_path == node_end(q->node));
	uint32_t n = tail_match(s, q, &at);
	int r = n > 0 ? radix_split_at(&at) : 0; /* a tail begins at the end of a node */
	if (r)
		return r;
	q->path_version++;
	if (n > 0) {
		s->stats.tokens_published -= n;
		s->stats.tokens_dropped += n;
		tail_pass(q, n);
		position_move_down(q, at.node, at.n_path);
	}
	r = q->tail.n > 0 ? rest_demote(q, at) : 0;
	tail_note(q);
	claim_move(s, q);
	return r;
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Of a node and what is below it, a lowest that has slices on the device; NULL: none has. */
static struct store_node *lowest(struct store_node *n)
{
	struct store_node *child = n;

	while (child) {
		n = child;
		LIST_FOREACH (child, &n->children, sibling)
			if (node_n_device(child) > 0)
				break;
	}
	return node_n_device(n) > 0 ? n : NULL;
}

/* At the end of the own path, or of what hangs on it. */
static struct store_node *own_victim(const struct store_seq *q)
{
	struct store_node *n = q->node;

	while (n->parent && node_n_device(n) == 0)
		n = n->parent;
	return n->parent ? lowest(n) : NULL;
}

static struct store_node *domain_victim(const struct store *s, const struct store_domain *d)
{
	struct store_node *n = NULL;
	const struct store_namespace *namespace;

	TAILQ_FOREACH (namespace, &s->all_namespaces, all) {
		if (namespace->holding->domain == d &&
		    places_units(&s->places, namespace->holding->model) > 0)
			n = lowest(namespace->root);
		if (n)
			break;
	}
	return n;
}

static bool node_leaves(struct store *s, struct store_node *n)
{
	if (!n->listed)
		return demote_used(s, n) == 0;
	demote_slice(s, n);
	return true;
}

static struct store_seq *domain_tail(const struct store *s, const struct store_domain *d)
{
	struct store_seq *q;

	TAILQ_FOREACH (q, &s->tiers->tails, tail.order)
		if (!q->tail.held && q->node->namespace->holding->domain == d)
			break;
	return q;
}

bool tail_make_room(struct store_seq *q)
{
	struct store *s = node_store(q->node);
	const struct store_holding *h = q->node->namespace->holding;

	if (!s->tiers || !s->tiers->long_paths || places_units(&s->places, h->model) == 0)
		return false;
	if (q->tail.n > 0)
		return tail_join(q) == 0;
	struct store_node *n = own_victim(q);
	if (n)
		return node_leaves(s, n);
	struct store_seq *other = domain_tail(s, h->domain);
	if (other)
		return tail_join(other) == 0;
	n = domain_victim(s, h->domain);
	return n && node_leaves(s, n);
}
