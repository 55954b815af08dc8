/*
 * demote.c - victims of host memory and file, and slices that leave the device. Which node leaves
 * the device says evict.c.
 *
 * Of the oldest leaf the last slice goes, so that what stays in a tier is a first part of every
 * path. What leaves host memory and is not in the file is forgotten, and what leaves the device and
 * finds no place in host memory is so too, unless the file has it.
 */
#include "demote.h"

#include "kvstore/tree/domain.h"
#include "kvstore/tree/residency.h"
#include "kvstore/tree/lru.h"
#include "dirty.h"
#include "forget.h"
#include "kvstore/tree/places.h"
#include "move.h"

#include <assert.h>
#include <errno.h>

/* The last slice in host memory goes. If it is not in the file, it is the last of a leaf: what is
 * below would be in neither. */
static bool leave_host(struct store *s, struct store_node *n)
{
	struct store_residency *res = n->residency;
	uint32_t i = res->n_memory - 1;

	if (s->places.host->filling[n->slices[i].page])
		moves_retire_down(s);
	if (s->places.host->filling[n->slices[i].page])
		return false;
	if (i >= res->n_backed) {
		forget_last(s, n);
		return true;
	}
	places_unref(s, STORE_HOST, n->slices[i].page);
	res->n_memory--;
	lru_update(n);
	return true;
}

/* The last image goes. If its slice is not in memory, it is the last of a leaf, as above. */
static void leave_file(struct store *s, struct store_node *n)
{
	struct store_residency *res = n->residency;

	if (res->n_backed > res->n_memory)
		forget_last(s, n);
	else
		residency_unback(n);
}

static bool is_above(const struct store_node *a, const struct store_node *n)
{
	while (n && n != a)
		n = n->parent;
	return n != NULL;
}

/* Of the domain if that would have more than so many units, else of those who have more than they
 * may, else of the model if it has any, else of all. */
static struct store_node *victim_of(const struct store *s, const struct store_holding *h,
				    enum store_tier tier, uint64_t most)
{
	struct store_node *n;

	if (places_over(&s->places, h, tier, most))
		return lru_oldest_of_domain(h->domain, tier);
	n = lru_oldest_beyond(s, tier);
	if (!n)
		n = lru_oldest_of_model(h->model, tier);
	return n ? n : lru_oldest(s, tier);
}

bool demote_can_wait(const struct store *s, const struct store_holding *h)
{
	const struct tiers *t = s->tiers;
	uint64_t most = places_most(&s->places, h, STORE_HOST);

	if (places_units(t->places, h->model) == 0 ||
	    places_has_room(&s->places, h, STORE_HOST, most))
		return false;
	const struct store_node *n = victim_of(s, h, STORE_HOST, most);
	if (!n || t->places->host->filling[n->slices[node_n_memory(n) - 1].page])
		return n != NULL;
	return node_n_backed(n) < node_n_memory(n) && t->n_dirty + t->queues[TIER_WRITE].n > 0;
}

/* Some slice leaves a tier to make room for a page of the holding's, whose domain is to have so
 * many units at most, not of the path to avoid. False: nothing could go. */
static bool demote_reclaim(struct store *s, struct store_holding *h, enum store_tier tier,
			   uint64_t most, const struct store_node *avoid)
{
	struct store_node *n = victim_of(s, h, tier, most);

	if (!n || is_above(n, avoid))
		return false;
	s->tiers->stats.tiers[tier].share_evicted += places_over(&s->places, h, tier, most);
	if (tier == STORE_HOST)
		return leave_host(s, n);
	leave_file(s, n);
	return true;
}

uint32_t demote_take(struct store *s, struct store_holding *h, enum store_tier tier,
		     const struct store_node *avoid)
{
	uint64_t most = places_most(&s->places, h, tier);

	while (!places_has_room(&s->places, h, tier, most))
		if (!demote_reclaim(s, h, tier, most, avoid))
			return TIER_NONE;
	return places_take(&s->places, h, tier);
}

/* Of the domain if that has its share of the journal, else of who takes most of it, or of all. */
static struct store_node *victim_of_journal(const struct store *s, const struct store_holding *h,
					    bool over_share)
{
	const struct tier_catalog *c = tier_file_catalog(s->places.file);
	const struct store_domain *d =
		over_share ? h->domain : domain_find(s, tier_shares_most(&c->shares));
	struct store_node *n = d ? lru_oldest_of_domain(d, STORE_FILE) : NULL;

	return n || over_share ? n : lru_oldest(s, STORE_FILE);
}

int demote_for_journal(struct store *s, struct store_holding *h, const struct store_node *avoid)
{
	const struct tier_catalog *c = tier_file_catalog(s->places.file);
	uint64_t n_under_way = s->tiers->queues[TIER_WRITE].n;
	uint64_t bytes = tier_catalog_bytes(n_under_way + 1, h->model->lent.page_tokens);
	uint64_t room = tier_catalog_room(c), share = room / 4 * 3;

	for (;;) {
		bool over_share = tier_shares_of(&c->shares, h->domain->id) + bytes > share;
		if (!over_share && c->shares.bytes + bytes < room)
			return 0;
		struct store_node *n = victim_of_journal(s, h, over_share);
		if (!n || is_above(n, avoid))
			return n_under_way > 0 ? -EAGAIN : -ENOSPC;
		leave_file(s, n);
		s->tiers->stats.journal_evicted++;
	}
}

/* Is anything below the node's first slices in memory? */
static bool is_held_up(const struct store_node *n, uint32_t n_slices)
{
	const struct store_node *child;

	if (n_slices < node_n_memory(n))
		return true;
	if (n_slices < n->n_slices)
		return false;
	LIST_FOREACH (child, &n->children, sibling)
		if (node_n_memory(child) > 0)
			return true;
	return false;
}

/* Host memory has a place for the node's slice. */
static bool to_host(struct store *s, struct store_node *n, uint32_t index, uint32_t place)
{
	uint64_t token;

	if (move_down(s, n->namespace->holding, n->slices[index], place, &token)) {
		places_unref(s, STORE_HOST, place);
		return false;
	}
	n->slices[index].page = place;
	return true;
}

static void leave_device(struct store *s, struct store_node *n, bool to_memory)
{
	struct store_residency *res = n->residency;

	res->n_device--;
	res->device_tokens -= n->slices[res->n_device].count;
	res->n_memory -= !to_memory;
	n->namespace->holding->n_idle_slices--;
	lru_update(n);
	if (to_memory)
		dirty_add(s, n);
}

uint32_t demote_slice(struct store *s, struct store_node *n)
{
	struct store_holding *h = n->namespace->holding;
	uint64_t before = s->pages.n_used;

	assert(n->listed && node_n_device(n) > 0);
	if (residency_reserve(n, 0)) {
		forget_from(s, n, 0);
		return (uint32_t)(before - s->pages.n_used);
	}
	uint32_t place = demote_take(s, h, STORE_HOST, NULL);
	uint32_t i = node_n_device(n) - 1;
	struct store_slice slice = n->slices[i];
	bool to_memory = place != TIER_NONE && to_host(s, n, i, place);
	if (!to_memory && (i >= n->residency->n_backed || is_held_up(n, i + 1))) {
		forget_from(s, n, i);
	} else {
		pages_drop(&s->pages, &h->pages, slice);
		leave_device(s, n, to_memory);
	}
	return (uint32_t)(before - s->pages.n_used);
}

int demote_used(struct store *s, struct store_node *n)
{
	struct store_holding *h = n->namespace->holding;

	assert(!n->listed && node_n_device(n) > 0);
	if (residency_reserve(n, 0))
		return -ENOMEM;
	uint32_t place = demote_take(s, h, STORE_HOST, NULL);
	if (place == TIER_NONE)
		return -ENOSPC;
	struct store_residency *res = n->residency;
	struct store_slice slice = n->slices[res->n_device - 1];
	if (!to_host(s, n, res->n_device - 1, place))
		return -ENOMEM;
	pages_drop(&s->pages, &h->pages, slice);
	res->n_device--;
	res->device_tokens -= slice.count;
	lru_update(n);
	dirty_add(s, n);
	s->tiers->n_left++;
	return 0;
}
