/* promote.c - see promote.h. */
#include "promote.h"

#include "evict.h"
#include "kvstore/tree/residency.h"
#include "move.h"
#include "kvstore/tree/node.h"
#include "kvstore/tree/radix.h"
#include "demote.h"
#include "stripe.h"

#include <errno.h>

/* How many slices of a node on the path are wanted. */
static uint32_t n_wanted(const struct store_seq *q, const struct store_node *n)
{
	uint32_t i = 0;

	if (n != q->want)
		return n->n_slices;
	for (uint32_t end = n->pos; end < q->want_path; i++)
		end += n->slices[i].count;
	return i;
}

static void count_hits(struct store *s, struct store_seq *q)
{
	struct store_tiers_stats *stats = &s->tiers->stats;

	q->want_tier = STORE_HOST;
	for (const struct store_node *n = q->want; n->parent; n = n->parent) {
		uint32_t n_slices = n_wanted(q, n);
		if (node_n_device(n) == n->n_slices)
			break;
		if (node_n_memory(n) < n_slices) {
			stats->tiers[STORE_FILE].hits += n_slices - node_n_memory(n);
			n_slices = node_n_memory(n);
			q->want_tier = STORE_FILE;
		}
		if (node_n_device(n) < n_slices)
			stats->tiers[STORE_HOST].hits += n_slices - node_n_device(n);
	}
}

static void want_begin(struct store *s, struct store_seq *q, struct radix_place at, uint64_t now_ns)
{
	q->want = at.node;
	q->want_path = at.n_path;
	q->want_waits = true;
	q->want_stays = false;
	q->want_since_ns = now_ns;
	LIST_INSERT_HEAD(&at.node->lower->wants, q, at_want);
	TAILQ_INSERT_TAIL(&s->tiers->wants, q, want_order);
	s->tiers->n_wants++;
	node_attach(at.node, NULL);
	count_hits(s, q);
}

static void want_rest(struct store *s, struct store_seq *q)
{
	if (!q->want_waits)
		return;
	q->want_waits = false;
	TAILQ_REMOVE(&s->tiers->wants, q, want_order);
	s->tiers->n_wants--;
}

void fetch_end(struct store *s, struct store_seq *q)
{
	struct store_node *n = q->want;

	if (!n)
		return;
	want_rest(s, q);
	LIST_REMOVE(q, at_want);
	q->want = NULL;
	node_detach(n, NULL);
}

bool fetch_want(struct store *s, struct store_seq *q, uint64_t now_ns)
{
	struct radix_place at = {.node = q->node, .n_path = q->n_path};
	uint32_t n = 0;

	if (!s->tiers)
		return false;
	if (!q->want_failed)
		n = radix_match_anywhere(s, &at, q->prompt + (q->n_path - q->prompt_pos),
					 q->n_prompt - 1 - q->n_path);
	if (n > 0 && q->want == at.node && q->want_path == at.n_path)
		return true;
	fetch_end(s, q);
	if (n > 0)
		want_begin(s, q, at, now_ns);
	return n > 0;
}

bool fetch_is_there(const struct store_seq *q)
{
	return q->want && q->want_stays && node_n_memory(q->want) >= n_wanted(q, q->want);
}

static bool is_met(const struct store_seq *q)
{
	if (q->want_stays)
		return fetch_is_there(q);
	return q->want->pos + node_device_tokens(q->want) >= q->want_path;
}

void fetch_look(struct store *s, uint64_t now_ns)
{
	struct store_seq *q = TAILQ_FIRST(&s->tiers->wants);

	while (q) {
		struct store_seq *next = TAILQ_NEXT(q, want_order);
		if (is_met(q)) {
			want_rest(s, q);
			s->tiers->stats.tiers[q->want_tier].waited_ns += now_ns - q->want_since_ns;
			s->epoch++;
		}
		q = next;
	}
}

/* One slice of host memory to the device. */
static int rise_slice(struct store *s, struct store_node *n, uint32_t index)
{
	struct store_holding *h = n->space->holding;
	struct store_slice page = {.page = stripe_round(n, index)};

	if (!move_has_room(s->tiers, TIER_UP) || s->tiers->host->filling[n->slices[index].page])
		return -EAGAIN;
	if (evict_is_due(h) && spill_can_wait(s, h))
		return -EAGAIN;
	int r = evict_take(n->space, n->slices[index].first, &page, 1);
	if (r)
		return r;
	page = pages_fill(&s->pages, h->model, page.page, n->slices[index].count);
	r = move_up(s, n, index, page);
	if (r)
		pages_drop(&s->pages, h->model, h->domain, page);
	return r;
}

/* One slice of the file to host memory. */
static int read_slice(struct store *s, struct store_node *n, uint32_t index)
{
	struct tiers *t = s->tiers;

	if (!move_has_room(t, TIER_READ) || !tier_file_has_room(t->file) ||
	    spill_can_wait(s, n->space->holding))
		return -EAGAIN;
	uint32_t host = tiers_take(s, n->space->holding, STORE_HOST, NULL);
	if (host == TIER_NONE)
		return -ENOSPC;
	int r = move_read(s, n, index, host);
	if (r)
		tiers_unref(s, STORE_HOST, host);
	return r;
}

/* Begins to bring wanted slices of the path to the device. -EAGAIN: more when others have ended; 0:
 * all of them are on their way, or have to come to host memory first. */
static int rise(struct store *s, const struct store_seq *q, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++) {
		struct store_node *n = s->tiers->path[i];
		struct store_lower *l = n->lower;
		uint32_t n_slices = l ? n_wanted(q, n) : 0;
		int r = 0;
		while (!r && l && l->n_device + l->n_rising < n_slices &&
		       l->n_device + l->n_rising < l->n_memory)
			r = rise_slice(s, n, l->n_device + l->n_rising);
		if (r)
			return r;
		if (l && l->n_device + l->n_rising < n_slices)
			return 0;
	}
	return 0;
}

/* The same from the file to host memory. */
static int read_ahead(struct store *s, const struct store_seq *q, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++) {
		struct store_node *n = s->tiers->path[i];
		struct store_lower *l = n->lower;
		uint32_t n_slices = l ? n_wanted(q, n) : 0;
		int r = 0;
		while (!r && l && l->n_memory + l->n_reading < n_slices)
			r = read_slice(s, n, l->n_memory + l->n_reading);
		if (r)
			return r;
	}
	return 0;
}

static bool is_busy(const struct tiers *t)
{
	return t->queues[TIER_DOWN].n + t->queues[TIER_UP].n + t->queues[TIER_READ].n +
		       t->queues[TIER_WRITE].n >
	       0;
}

/* Are slices of the path on their way to the device? */
static bool is_rising(const struct tiers *t, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++)
		if (t->path[i]->lower && t->path[i]->lower->n_rising > 0)
			return true;
	return false;
}

/* What cannot be had is not waited for: the sequence computes it. */
static void want_fail(struct store *s, struct store_seq *q)
{
	s->tiers->stats.wants_failed++;
	q->want_failed = true;
	fetch_end(s, q);
	s->epoch++;
}

static void want_serve(struct store *s, struct store_seq *q)
{
	uint32_t depth = tiers_path(s->tiers, q->want);
	int r = depth ? 0 : -ENOMEM;

	if (!r && !q->want_stays)
		r = rise(s, q, depth);
	if (r && r != -EAGAIN && s->tiers->long_paths && depth) {
		q->want_stays = true;
		r = 0;
	}
	if (r && r != -EAGAIN) {
		if (!is_rising(s->tiers, depth))
			want_fail(s, q);
		return;
	}
	r = read_ahead(s, q, depth);
	if (r && r != -EAGAIN && !is_busy(s->tiers))
		want_fail(s, q);
}

void fetch_begin_moves(struct store *s)
{
	struct tiers *t = s->tiers;
	struct store_seq *q = TAILQ_FIRST(&t->wants);

	while (q && (move_has_room(t, TIER_UP) || move_has_room(t, TIER_READ))) {
		struct store_seq *next = TAILQ_NEXT(q, want_order);
		want_serve(s, q);
		q = next;
	}
}
