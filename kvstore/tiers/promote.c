/*
 * promote.c - which wanted slice is copied or read next.
 *
 * A want is served from the root on: nothing rises before what is above it has risen. Reads from
 * the file go ahead of the copies up. Where the device has no room the want fails, and the sequence
 * computes; or with long paths it is content with host memory.
 */
#include "promote.h"

#include "evict.h"
#include "move.h"
#include "kvstore/tree/node.h"
#include "demote.h"
#include "stripe.h"
#include "want.h"
#include "kvstore/tree/places.h"

#include <errno.h>

/* One slice of host memory to the device. */
static int promote_slice(struct store *s, struct store_node *n, uint32_t index)
{
	struct store_holding *h = n->namespace->holding;
	struct store_slice page = {.page = stripe_round(n, index)};

	if (!move_has_room(s->tiers, TIER_UP) || s->places.host->filling[n->slices[index].page])
		return -EAGAIN;
	if (evict_is_due(h) && demote_can_wait(s, h))
		return -EAGAIN;
	int r = evict_take(n->namespace, n->slices[index].first, &page, 1);
	if (r)
		return r;
	page = pages_fill(&s->pages, &h->model->lent, page.page, n->slices[index].count);
	r = move_up(s, n, index, page);
	if (r)
		pages_drop(&s->pages, &h->pages, page);
	return r;
}

/* One slice of the file to host memory. */
static int read_slice(struct store *s, struct store_node *n, uint32_t index)
{
	struct tiers *t = s->tiers;

	if (!move_has_room(t, TIER_READ) || !tier_file_has_room(t->places->file) ||
	    demote_can_wait(s, n->namespace->holding))
		return -EAGAIN;
	uint32_t host = demote_take(s, n->namespace->holding, STORE_HOST, NULL);
	if (host == TIER_NONE)
		return -ENOSPC;
	int r = move_read(s, n, index, host);
	if (r)
		places_unref(s, STORE_HOST, host);
	return r;
}

/* Begins to bring wanted slices of the path to the device. -EAGAIN: more when others have ended; 0:
 * all of them are on their way, or have to come to host memory first. */
static int promote_path(struct store *s, const struct store_seq *q, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++) {
		struct store_node *n = s->path.nodes[i];
		struct store_residency *res = n->residency;
		uint32_t n_slices = res ? want_n_slices(q, n) : 0;
		int r = 0;
		while (!r && res && res->n_device + res->n_rising < n_slices &&
		       res->n_device + res->n_rising < res->n_memory)
			r = promote_slice(s, n, res->n_device + res->n_rising);
		if (r)
			return r;
		if (res && res->n_device + res->n_rising < n_slices)
			return 0;
	}
	return 0;
}

/* The same from the file to host memory. */
static int read_ahead(struct store *s, const struct store_seq *q, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++) {
		struct store_node *n = s->path.nodes[i];
		struct store_residency *res = n->residency;
		uint32_t n_slices = res ? want_n_slices(q, n) : 0;
		int r = 0;
		while (!r && res && res->n_memory + res->n_reading < n_slices)
			r = read_slice(s, n, res->n_memory + res->n_reading);
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
static bool is_rising(const struct store *s, uint32_t depth)
{
	for (uint32_t i = 0; i < depth; i++)
		if (s->path.nodes[i]->residency && s->path.nodes[i]->residency->n_rising > 0)
			return true;
	return false;
}

static void want_serve(struct store *s, struct store_seq *q)
{
	uint32_t depth = node_path(s, q->want);
	int r = depth ? 0 : -ENOMEM;

	if (!r && !q->want_stays)
		r = promote_path(s, q, depth);
	if (r && r != -EAGAIN && s->tiers->long_paths && depth) {
		q->want_stays = true;
		r = 0;
	}
	if (r && r != -EAGAIN) {
		if (!is_rising(s, depth))
			want_give_up(s, q);
		return;
	}
	r = read_ahead(s, q, depth);
	if (r && r != -EAGAIN && !is_busy(s->tiers))
		want_give_up(s, q);
}

void promote_begin_moves(struct store *s)
{
	struct tiers *t = s->tiers;
	struct store_seq *q = TAILQ_FIRST(&t->wants);

	while (q && (move_has_room(t, TIER_UP) || move_has_room(t, TIER_READ))) {
		struct store_seq *next = TAILQ_NEXT(q, want_order);
		want_serve(s, q);
		q = next;
	}
}
