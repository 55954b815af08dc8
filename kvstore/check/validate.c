/*
 * validate.c - the store's invariants as a program: every count is counted again, every list
 * walked; see store.h.
 *
 * First the trees, noting which rows of which pages their slices and the live extensions cover;
 * then the lists, the page table and the sums against what was noted.
 */
#include "kvstore/seq/prompt.h"
#include "kvstore/store.h"

#include "kvstore/tree/claim.h"
#include "kvstore/tree/lru.h"
#include "kvstore/tree/node.h"
#include "validate_domain.h"
#include "validate_pages.h"
#include "validate_tiers.h"

#include <errno.h>
#include <stdlib.h>

/* Rows that are a sequence's alone. */
struct own {
	const struct store_slice *slices;
	uint32_t n_slices;
	uint32_t pos, n_tokens; /* that they cover */
};

/* Consecutive slices are in different pages. */
static int check_own(struct validate *v, struct store_holding *h, struct own own)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < own.n_slices; i++) {
		CHECK(v, i == 0 || own.slices[i].page != own.slices[i - 1].page,
		      "two slices of page %u follow each other", own.slices[i].page);
		TRY(note_slice(v, h, own.slices[i], own.pos + n));
		n += own.slices[i].count;
	}
	CHECK(v, n == own.n_tokens, "slices at %u cover %u tokens of %u", own.pos, n, own.n_tokens);
	return 0;
}

static int check_claim(struct validate *v, const struct store_seq *q)
{
	if (!q->claims)
		return 0;
	v->n_claims++;
	CHECK(v, q->n_prompt > 0, "a claim without a prompt");
	CHECK(v, claim_find(v->s, q) == q, "a claim is not found at its position");
	return 0;
}

static int check_seq(struct validate *v, const struct store_node *n, const struct store_seq *q)
{
	v->n_seqs++;
	v->prompt_bytes += prompt_bytes(q);
	CHECK(v, q->node == n, "a sequence is listed at another node");
	CHECK(v, q->n_path <= node_end(n) && (n->parent ? q->n_path > n->pos : q->n_path == 0),
	      "a sequence of %u tokens at node [%u, %u)", q->n_path, n->pos, node_end(n));
	CHECK(v, !q->n_prompt == !q->prompt, "a prompt without tokens");
	CHECK(v, !q->n_prompt || (q->n_path < q->n_prompt && q->prompt->pos <= q->n_path),
	      "prompt [%u, %u) at %u", q->prompt ? q->prompt->pos : 0, q->n_prompt, q->n_path);
	CHECK(v, !q->n_live || q->n_path == node_end(n), "a live extension inside a node");
	CHECK(v, q->n_live || (!q->n_slots && !q->draft), "slots without an extension");
	const struct own tail = {q->tail.slots, q->tail.n_slots, q->n_path, q->tail.n};
	const struct own live = {q->slots, q->n_slots, q->n_path + q->tail.n, q->n_live};
	TRY(check_own(v, n->namespace->holding, tail));
	TRY(check_own(v, n->namespace->holding, live));
	CHECK(v, q->tail.n == 0 || q->n_path == node_end(n), "a tail in the middle of a node");
	return check_claim(v, q);
}

static int check_pin(struct validate *v, const struct store_node *n, const struct store_pin *p)
{
	v->n_pins++;
	CHECK(v, p->node == n, "a pin is listed at another node");
	CHECK(v, p->n_path <= node_end(n) && (n->parent ? p->n_path > n->pos : p->n_path == 0),
	      "a pin of %u tokens at node [%u, %u)", p->n_path, n->pos, node_end(n));
	CHECK(v, v->s->pin_heap.pins[p->heap_index] == p, "a pin is not in the heap");
	return 0;
}

static int check_users(struct validate *v, const struct store_node *n)
{
	const struct store_node *child;
	const struct store_seq *q;
	const struct store_pin *p;
	uint32_t n_users = 0, n_pinned = 0;

	LIST_FOREACH (child, &n->children, sibling) {
		n_users += child->n_users;
		n_pinned += child->n_pinned;
	}
	LIST_FOREACH (q, &n->seqs, at_node) {
		TRY(check_seq(v, n, q));
		n_users++;
	}
	LIST_FOREACH (p, &n->pins, at_node) {
		TRY(check_pin(v, n, p));
		n_users++;
		n_pinned++;
	}
	if (n->residency)
		LIST_FOREACH (q, &n->residency->wants, at_want) {
			TRY(validate_want(v, n, q));
			n_users++;
		}
	CHECK(v, n_pinned == n->n_pinned, "node at %u: %u pins, counted %u", n->pos, n->n_pinned,
	      n_pinned);
	v->pinned_bytes += n_pinned > 0 ? n->n_slices * node_model(n)->lent.page_bytes : 0;
	CHECK(v, n_users == n->n_users, "node at %u: %u users, counted %u", n->pos, n->n_users,
	      n_users);
	return 0;
}

static uint64_t lru_rank(const struct validate *v, const struct store_node *n, enum store_tier tier)
{
	return v->lru_ranks[tier][node_number(n) - 1];
}

static int check_lru(struct validate *v, const struct store_node *n, enum store_tier tier)
{
	bool due = n->parent && n->n_users == 0 && node_n_in(n, tier) > 0;
	bool listed = lru_has(n, tier);

	CHECK(v, listed == due, "node at %u with %u users: listed %d in tier %d", n->pos,
	      n->n_users, listed, tier);
	CHECK(v, listed == (lru_rank(v, n, tier) > 0), "node at %u is not in its list", n->pos);
	CHECK(v,
	      !listed || !lru_has(n->parent, tier) ||
		      lru_rank(v, n, tier) < lru_rank(v, n->parent, tier),
	      "a parent stands before its child at %u", n->pos);
	return 0;
}

/* The child is found by its first token; were there two, one of them would not be. */
static int check_link(struct validate *v, const struct store_node *n)
{
	const struct store_node *parent = n->parent;
	const struct index_link *l = &n->link;

	CHECK(v, n->n_tokens > 0, "an empty node");
	CHECK(v, n->first_token == n->tokens[0], "node at %u: stale first token", n->pos);
	CHECK(v, n->pos == node_end(parent), "node at %u, parent ends at %u", n->pos,
	      node_end(parent));
	CHECK(v, n->namespace == parent->namespace, "node at %u in another namespace", n->pos);
	CHECK(v, n->link.hash == index_hash(v->s->seed, parent->id, n->first_token),
	      "node at %u under another hash", n->pos);
	l = index_find(&v->s->children, n->link.hash);
	for (; l != &n->link; l = index_find_next(l)) {
		CHECK(v, l, "node at %u is not in the index", n->pos);
		const struct store_node *other = INDEX_ENTRY(l, struct store_node, link);
		CHECK(v, other->parent != parent || other->first_token != n->first_token,
		      "two children at %u begin alike", n->pos);
	}
	CHECK(v, !parent->hint || parent->hint->parent == parent, "a hint that is no child");
	v->n_nodes++;
	return 0;
}

static int check_node(struct validate *v, const struct store_node *n)
{
	CHECK(v, node_by_id(v->s, n->id) == n, "a node is not found by its id");
	CHECK(v, !numbers_is_free(&v->s->slab.slots, node_number(n) - 1),
	      "the number of a node is free");
	v->n_noted += n->noted;
	if (n->parent)
		TRY(check_link(v, n));
	TRY(validate_residency(v, n));
	TRY(check_users(v, n));
	v->n_tokens += n->n_tokens;
	for (enum store_tier i = 0; i < STORE_TIERS; i++)
		TRY(check_lru(v, n, i));
	return 0;
}

static int check_namespace(struct validate *v, const struct store_namespace *namespace)
{
	const struct store_node *root = namespace->root;

	v->n_namespaces++;
	CHECK(v, !root->parent && root->n_tokens == 0 && root->pos == 0, "a root with tokens");
	CHECK(v, root->height <= v->s->config.max_path_nodes, "a path of %u nodes", root->height);
	CHECK(v, root->n_users > 0 || !LIST_EMPTY(&root->children), "an empty unused namespace");
	for (const struct store_node *n = root; n; n = note_next(n)) {
		const struct store_node *child;
		LIST_FOREACH (child, &n->children, sibling) {
			CHECK(v, child->parent == n, "a child at %u of another parent", child->pos);
			CHECK(v, child->height < n->height, "a node at %u as high as its parent",
			      child->pos);
		}
		TRY(check_node(v, n));
	}
	return 0;
}

static int note_lru(struct validate *v, const struct store_holding *h, enum store_tier tier)
{
	const struct store_node *n;
	uint64_t n_slices = 0, stamp = 0, rank = 0;

	for (n = TAILQ_FIRST(&h->lru[tier]); n;
	     n = tier == STORE_DEVICE ? TAILQ_NEXT(n, lru) : TAILQ_NEXT(n, residency->lru[tier])) {
		CHECK(v, lru_stamp(n, tier) >= stamp, "stamps fall along a list");
		CHECK(v, n->namespace->holding == h, "a node in the list of another holding");
		stamp = lru_stamp(n, tier);
		v->lru_ranks[tier][node_number(n) - 1] = ++rank;
		n_slices += node_n_device(n);
	}
	CHECK(v, tier != STORE_DEVICE || n_slices == h->n_idle_slices,
	      "%lu idle slices, counted %lu", h->n_idle_slices, n_slices);
	return 0;
}

/* Distinct pages of a domain are those that its slices touch first. */
static uint64_t count_pages(struct validate *v, const struct store_model *m,
			    const struct store_slice *slices, uint32_t n)
{
	uint64_t n_new = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t *seen = &v->extents[slices[i].page / m->lent.extent_pages]
					  .n_slices[slices[i].page % m->lent.extent_pages];
		n_new += *seen > 0;
		*seen = 0;
	}
	return n_new;
}

static uint64_t namespace_bytes(struct validate *v, const struct store_namespace *namespace)
{
	const struct store_model *m = namespace->holding->model;
	uint64_t n_pages = 0;

	for (const struct store_node *n = namespace->root; n; n = note_next(n)) {
		const struct store_seq *q;
		n_pages += count_pages(v, m, n->slices, node_n_device(n));
		LIST_FOREACH (q, &n->seqs, at_node)
			n_pages += count_pages(v, m, q->slots, q->n_slots) +
				   count_pages(v, m, q->tail.slots, q->tail.n_slots);
	}
	return n_pages * m->lent.page_bytes;
}

/* Uses up the slices that were noted: last. */
static int check_domains(struct validate *v)
{
	const struct store_holding *h, *other;

	LIST_FOREACH (h, &v->s->all_holdings, all) {
		const struct store_namespace *namespace;
		uint64_t bytes = 0;
		uint32_t n_extents = 0, max_extents = h->domain->pages.max_extents;
		if (h != LIST_FIRST(&h->domain->holdings))
			continue;
		TRY(validate_domain(v, h->domain));
		TAILQ_FOREACH (namespace, &v->s->all_namespaces, all)
			if (namespace->holding->domain == h->domain)
				bytes += namespace_bytes(v, namespace);
		LIST_FOREACH (other, &h->domain->holdings, of_domain)
			bytes += validate_moving_pages(v, other) * other->model->lent.page_bytes;
		uint64_t limit = h->domain->pages.max_bytes;
		CHECK(v, limit == 0 || bytes <= limit, "domain %lu: %lu bytes are over its limit",
		      h->domain->id, bytes);
		CHECK(v, bytes == h->domain->pages.bytes,
		      "domain %lu: charged %lu bytes, counted %lu", h->domain->id,
		      h->domain->pages.bytes, bytes);
		LIST_FOREACH (other, &h->domain->holdings, of_domain) {
			CHECK(v, other->domain == h->domain, "a holding of another domain");
			n_extents += other->tenant.n_extents;
		}
		CHECK(v, n_extents == h->domain->pages.n_extents && n_extents <= max_extents,
		      "domain %lu: %u extents of %u, counted %u", h->domain->id,
		      h->domain->pages.n_extents, max_extents, n_extents);
	}
	return 0;
}

static int check_claims(struct validate *v)
{
	const struct store_seq *q;
	uint64_t n = 0, lease_ns = 0;

	TAILQ_FOREACH (q, &v->s->claim_order, claim_order) {
		CHECK(v, q->claims && q->lease_ns >= lease_ns, "leases out of order");
		lease_ns = q->lease_ns;
		n++;
	}
	CHECK(v, n == v->n_claims && n == v->s->claims.n_links, "%lu claims, counted %lu",
	      v->s->claims.n_links, v->n_claims);
	return 0;
}

static int check_sums(struct validate *v)
{
	const struct store *s = v->s;
	const struct pin_heap *heap = &s->pin_heap;

	CHECK(v, v->n_nodes == s->stats.n_nodes && v->n_nodes == s->children.n_links,
	      "%lu nodes, counted %lu", s->stats.n_nodes, v->n_nodes);
	CHECK(v, v->n_tokens == s->stats.n_tokens, "%lu tokens, counted %lu", s->stats.n_tokens,
	      v->n_tokens);
	CHECK(v, v->n_seqs == s->stats.n_seqs, "%lu sequences, counted %lu", s->stats.n_seqs,
	      v->n_seqs);
	CHECK(v, v->pinned_bytes == s->stats.pinned_bytes, "%lu bytes pinned, counted %lu",
	      s->stats.pinned_bytes, v->pinned_bytes);
	CHECK(v, v->prompt_bytes == s->stats.prompt_bytes, "%lu bytes of prompts, counted %lu",
	      s->stats.prompt_bytes, v->prompt_bytes);
	CHECK(v, v->n_namespaces == s->namespaces.n_links, "%lu namespaces, counted %lu",
	      s->namespaces.n_links, v->n_namespaces);
	CHECK(v, v->n_pins == heap->n && v->n_pins == s->pins.n_links, "%u pins, counted %lu",
	      heap->n, v->n_pins);
	for (uint32_t i = 1; i < heap->n; i++)
		CHECK(v, heap->pins[(i - 1) / 2]->until_ns <= heap->pins[i]->until_ns,
		      "the heap of pins is out of order at %u", i);
	return 0;
}

/* Borders that are noted are so of nodes that know it, each once. */
static int check_borders(struct validate *v)
{
	const struct borders *b = &v->s->borders;
	uint64_t n = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct store_node *at =
			node_by_id(v->s, b->ids[(b->first + i) % BORDERS_MAX]);
		CHECK(v, !at || at->noted, "a border of a node that does not know of it");
		n += at != NULL;
	}
	CHECK(v, n == v->n_noted, "%lu borders noted, counted %lu", n, v->n_noted);
	return 0;
}

/* Numbers are those of nodes and roots, the others are free. */
static int check_numbers(struct validate *v)
{
	uint32_t n_slots = v->s->slab.n_chunks * NODE_SLAB_NODES;
	uint64_t n_taken = 0;

	for (uint32_t i = 0; i < n_slots; i++)
		n_taken += !numbers_is_free(&v->s->slab.slots, i);
	CHECK(v, n_taken == v->n_nodes + v->n_namespaces, "%lu numbers are taken, counted %lu",
	      n_taken, v->n_nodes + v->n_namespaces);
	return 0;
}

static int validate_begin(struct validate *v)
{
	const struct pages *pages = &v->s->pages;

	size_t n_nodes = (size_t)v->s->slab.n_chunks * NODE_SLAB_NODES + 1;

	for (enum store_tier i = 0; i < STORE_TIERS; i++) {
		v->lru_ranks[i] = calloc(n_nodes, sizeof(*v->lru_ranks[i]));
		if (!v->lru_ranks[i])
			return -ENOMEM;
	}
	v->extents = calloc(pages->n_extents, sizeof(*v->extents));
	if (!v->extents || validate_tiers_begin(v))
		return -ENOMEM;
	for (uint32_t i = 0; i < pages->n_extents; i++) {
		const struct pages_lent *lent = pages->extents[i].lent;
		if (!lent)
			continue;
		v->extents[i].n_slices = calloc(lent->extent_pages, sizeof(uint32_t));
		v->extents[i].rows = calloc(lent->extent_pages, lent->page_tokens);
		if (!v->extents[i].n_slices || !v->extents[i].rows)
			return -ENOMEM;
	}
	return 0;
}

static void validate_done(struct validate *v)
{
	for (uint32_t i = 0; v->extents && i < v->s->pages.n_extents; i++) {
		free(v->extents[i].n_slices);
		free(v->extents[i].rows);
	}
	free(v->extents);
	for (enum store_tier i = 0; i < STORE_TIERS; i++)
		free(v->lru_ranks[i]);
	validate_tiers_done(v);
}

static int validate_all(struct validate *v)
{
	const struct store_holding *h;
	const struct store_namespace *namespace;

	LIST_FOREACH (h, &v->s->all_holdings, all)
		for (enum store_tier i = 0; i < STORE_TIERS; i++)
			TRY(note_lru(v, h, i));
	TAILQ_FOREACH (namespace, &v->s->all_namespaces, all)
		TRY(check_namespace(v, namespace));
	TRY(validate_tiers(v));
	TRY(validate_pages(v));
	TRY(validate_tenants(v));
	TRY(check_claims(v));
	TRY(check_borders(v));
	TRY(check_numbers(v));
	TRY(check_sums(v));
	return check_domains(v);
}

int store_validate(const struct store *s, char *error, size_t error_bytes)
{
	struct validate v = {.s = s, .error = error, .error_bytes = error_bytes};
	int r = validate_begin(&v);

	r = r ? note_fail(&v, "no memory to validate with") : validate_all(&v);
	validate_done(&v);
	return r;
}
