/*
 * validate_tiers.c - the lower tiers' invariants; see note.h, residency.h and move.h.
 *
 * Every slice is in one tier that is nearest, and what it refers to there and in the file is
 * counted against what the rooms count.
 */
#include "validate_tiers.h"

#include "kvstore/tree/places.h"
#include "kvstore/tiers/move.h"

#include <errno.h>
#include <stdlib.h>

static size_t n_places(const struct places *p, enum store_tier tier)
{
	const struct tier_room *room = places_room(p, tier);

	return room ? (size_t)room->n_chunks * room->chunk_units : 0;
}

int validate_tiers_begin(struct validate *v)
{
	for (enum store_tier i = STORE_HOST; v->s->tiers && i < STORE_TIERS; i++) {
		v->refs[i] = calloc(n_places(&v->s->places, i) + 1, sizeof(*v->refs[i]));
		if (!v->refs[i])
			return -ENOMEM;
	}
	return 0;
}

void validate_tiers_done(struct validate *v)
{
	for (enum store_tier i = STORE_HOST; i < STORE_TIERS; i++)
		free(v->refs[i]);
}

static int note_place(struct validate *v, enum store_tier tier, uint32_t place)
{
	CHECK(v, place < n_places(&v->s->places, tier), "place %u of tier %d", place, tier);
	v->refs[tier][place]++;
	return 0;
}

/* Slices of a node that are not on the device, and images. */
static int check_slice_places(struct validate *v, const struct store_node *n)
{
	uint32_t pos = n->pos;

	for (uint32_t i = 0; i < n->n_slices; i++) {
		uint32_t count = n->slices[i].count;
		if (i < node_n_device(n))
			TRY(note_slice(v, n->namespace->holding, n->slices[i], pos));
		else if (i < node_n_memory(n))
			TRY(note_place(v, STORE_HOST, n->slices[i].page));
		if (i < node_n_backed(n))
			TRY(note_place(v, STORE_FILE, n->residency->images[i]));
		CHECK(v, i < node_n_memory(n) || i < node_n_backed(n),
		      "slice %u of the node at %u is nowhere", i, n->pos);
		CHECK(v, count > 0 && n->slices[i].first == pos % node_model(n)->lent.page_tokens,
		      "slice %u of the node at %u: rows %u + %u", i, n->pos, n->slices[i].first,
		      count);
		pos += count;
		CHECK(v, i + 1 != node_n_device(n) || pos == n->pos + node_device_tokens(n),
		      "node at %u: %u tokens on the device", n->pos, node_device_tokens(n));
		CHECK(v, i + 1 != node_n_backed(n) || pos == n->pos + n->residency->backed_tokens,
		      "node at %u: %u tokens in the file", n->pos, n->residency->backed_tokens);
	}
	CHECK(v, pos == node_end(n), "slices at %u cover %u tokens of %u", n->pos, pos - n->pos,
	      n->n_tokens);
	return 0;
}

/* A first part of every path, in each tier. */
static int check_prefixes(struct validate *v, const struct store_node *n)
{
	const struct store_node *p = n->parent;

	CHECK(v,
	      node_n_device(n) <= node_n_memory(n) && node_n_memory(n) <= n->n_slices &&
		      node_n_backed(n) <= n->n_slices,
	      "node at %u: %u, %u, %u of %u slices", n->pos, node_n_device(n), node_n_memory(n),
	      node_n_backed(n), n->n_slices);
	CHECK(v, !n->residency || n->residency->n_device > 0 || n->residency->device_tokens == 0,
	      "node at %u: tokens without slices", n->pos);
	CHECK(v, !n->residency || n->residency->n_backed > 0 || n->residency->backed_tokens == 0,
	      "node at %u: tokens without images", n->pos);
	if (!p)
		return 0;
	CHECK(v, node_n_device(n) == 0 || node_n_device(p) == p->n_slices,
	      "node at %u is on the device below one that is not", n->pos);
	CHECK(v, node_n_memory(n) == 0 || node_n_memory(p) == p->n_slices,
	      "node at %u is in memory below one that is not", n->pos);
	CHECK(v, node_n_backed(n) == 0 || node_n_backed(p) == p->n_slices,
	      "node at %u is in the file below one that is not", n->pos);
	return 0;
}

/* A sequence stands on the device, or where it may not, in memory. */
static int check_position(struct validate *v, const struct store_node *n, const struct store_seq *q)
{
	uint32_t end = n->pos;

	if (q->n_path <= n->pos + node_device_tokens(n))
		return 0;
	CHECK(v, v->s->tiers && v->s->tiers->long_paths,
	      "a sequence of %u tokens stands below the device", q->n_path);
	for (uint32_t i = 0; i < node_n_memory(n); i++)
		end += n->slices[i].count;
	CHECK(v, q->n_path <= end, "a sequence of %u tokens stands in the file", q->n_path);
	return 0;
}

int validate_residency(struct validate *v, const struct store_node *n)
{
	const struct store_seq *q;

	CHECK(v, !n->residency || (v->s->tiers && n->parent), "a part below the device at %u",
	      n->pos);
	TRY(check_prefixes(v, n));
	TRY(check_slice_places(v, n));
	LIST_FOREACH (q, &n->seqs, at_node)
		TRY(check_position(v, n, q));
	v->n_dirty += n->residency && n->residency->dirty;
	return 0;
}

int validate_want(struct validate *v, const struct store_node *n, const struct store_seq *q)
{
	const struct store_node *at = n;

	CHECK(v, q->want == n && q->want_path > n->pos && q->want_path <= node_end(n),
	      "a want of %u tokens at the node at %u", q->want_path, n->pos);
	CHECK(v, q->n_prompt > q->want_path && q->n_path < q->want_path,
	      "a want of %u tokens of a prompt of %u at %u", q->want_path, q->n_prompt, q->n_path);
	while (at && at != q->node)
		at = at->parent;
	CHECK(v, at, "a want on another path");
	v->n_wants += q->want_waits;
	return 0;
}

static int note_moves(struct validate *v, enum tier_way way)
{
	const struct tier_queue *queue = &v->s->tiers->queues[way];
	const struct tier_move *m;
	uint32_t n = 0;

	TAILQ_FOREACH (m, &queue->moves, link) {
		n++;
		TRY(note_place(v, STORE_HOST, m->host));
		if (m->file != TIER_NONE)
			TRY(note_place(v, STORE_FILE, m->file));
		if (way == TIER_UP)
			TRY(note_slice(v, m->holding, m->slice, m->slice.first));
		CHECK(v, way != TIER_DOWN || v->s->places.host->filling[m->host],
		      "a copy into a place that is not being filled");
	}
	CHECK(v, n == queue->n, "%u moves of way %d, counted %u", queue->n, way, n);
	return 0;
}

static int check_rooms(struct validate *v, enum store_tier tier)
{
	const struct places *p = &v->s->places;
	const struct tier_room *room = places_room(p, tier);
	uint64_t n_used = 0;

	for (uint32_t i = 0; i < n_places(p, tier); i++) {
		CHECK(v, room->refs[i] == v->refs[tier][i],
		      "place %u of tier %d: %u references, counted %u", i, tier, room->refs[i],
		      v->refs[tier][i]);
		if (room->refs[i] > 0)
			n_used += tier_room_run(room, i);
	}
	CHECK(v, n_used == (room ? room->n_used : 0), "tier %d: counted %lu units", tier, n_used);
	return 0;
}

static int check_passing(struct validate *v)
{
	const struct places *p = &v->s->places;
	uint64_t n = 0;

	for (uint32_t i = 0; i < n_places(p, STORE_HOST); i++)
		if (p->host->room.refs[i] > 0 && !p->owners[STORE_HOST][i])
			n += tier_room_run(&p->host->room, i);
	CHECK(v, n == p->n_passing, "%u units pass through host memory, counted %lu", p->n_passing,
	      n);
	return 0;
}

static int check_charges(struct validate *v, enum store_tier tier)
{
	const struct places *p = &v->s->places;
	const struct store_holding *h;
	uint32_t n_over = 0;

	LIST_FOREACH (h, &v->s->all_holdings, all) {
		const struct store_domain *d = h->domain;
		uint64_t n = 0;
		for (uint32_t i = 0; i < n_places(p, tier); i++)
			if (p->owners[tier][i] == d)
				n += tier_room_run(places_room(p, tier), i);
		CHECK(v, n == d->tier_units[tier],
		      "domain %lu: charged %lu units of tier %d, counted %lu", d->id,
		      d->tier_units[tier], tier, n);
		CHECK(v, n <= d->most_units[tier], "domain %lu is over its limit of tier %d", d->id,
		      tier);
		n_over += n > d->max_units[tier] && h == LIST_FIRST(&d->holdings);
	}
	CHECK(v, n_over == p->n_over[tier], "%u domains have more than they may, counted %u",
	      p->n_over[tier], n_over);
	return 0;
}

int validate_tiers(struct validate *v)
{
	const struct tiers *t = v->s->tiers;

	if (!t)
		return 0;
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		TRY(note_moves(v, way));
	for (enum store_tier i = STORE_HOST; i < STORE_TIERS; i++) {
		TRY(check_rooms(v, i));
		TRY(check_charges(v, i));
	}
	TRY(check_passing(v));
	CHECK(v, v->n_wants == t->n_wants, "%u wants, counted %lu", t->n_wants, v->n_wants);
	CHECK(v, v->n_dirty == t->n_dirty, "%u nodes to be written, counted %lu", t->n_dirty,
	      v->n_dirty);
	return 0;
}

uint64_t validate_moving_pages(const struct validate *v, const struct store_holding *h)
{
	const struct tier_move *m;
	uint64_t n = 0;

	if (v->s->tiers)
		TAILQ_FOREACH (m, &v->s->tiers->queues[TIER_UP].moves, link)
			n += m->holding == h;
	return n;
}
