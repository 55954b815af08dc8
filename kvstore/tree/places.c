/*
 * places.c - the ledger of host memory and file.
 *
 * Each place counts who refers to it: slices of nodes, moves, gathers. It is charged to one domain,
 * or to nobody while a page passes through host memory on its way to the file. So a domain's units
 * are those of the places that it owns, always.
 */
#include "places.h"

#include "domain.h"
#include "proto/arith.h"

#include <assert.h>

struct tier_room *places_room(const struct places *p, enum store_tier tier)
{
	if (tier == STORE_HOST)
		return &p->host->room;
	return p->file ? &tier_file_catalog(p->file)->room : NULL;
}

uint32_t places_units(const struct places *p, const struct store_model *m)
{
	uint64_t unit = p->host->unit_bytes;
	uint64_t n = ceil_div_u64(m->lent.page_bytes, unit);

	return n <= p->host->room.chunk_units ? (uint32_t)n : 0;
}

/* Host memory that is left for pages on their way from the device to the file: these go before the
 * others, so that what waits for them in host memory may go too. */
static uint64_t reserve_of(const struct places *p, enum store_tier tier, uint32_t n_units)
{
	uint64_t most = (uint64_t)p->host->room.n_chunks * p->host->room.chunk_units / 4;
	uint64_t wanted = (uint64_t)p->max_passing * n_units;

	if (tier != STORE_HOST)
		return 0;
	return min_u64(wanted, most);
}

uint64_t places_most(const struct places *p, const struct store_holding *h, enum store_tier tier)
{
	uint64_t n = places_units(p, h->model), max = h->domain->max_units[tier],
		 now = h->domain->tier_units[tier], less = now > n ? now - n : 0;

	return max_u64(less, max);
}

bool places_over(const struct places *p, const struct store_holding *h, enum store_tier tier,
		 uint64_t most)
{
	return h->domain->tier_units[tier] + places_units(p, h->model) > most;
}

bool places_has_room(const struct places *p, const struct store_holding *h, enum store_tier tier,
		     uint64_t most)
{
	const struct tier_room *room = places_room(p, tier);
	uint32_t n = places_units(p, h->model);
	uint64_t n_all = (uint64_t)room->n_chunks * room->chunk_units;
	uint32_t n_passing = tier == STORE_HOST ? p->n_passing : 0;

	return !places_over(p, h, tier, most) && tier_room_has(room, n) &&
	       room->n_used - n_passing + n + reserve_of(p, tier, n) <= n_all;
}

static bool is_over(const struct store_domain *d, enum store_tier tier)
{
	return d->tier_units[tier] > d->max_units[tier];
}

static void charge(struct places *p, struct store_domain *d, enum store_tier tier, uint32_t place)
{
	bool was_over = is_over(d, tier);

	p->owners[tier][place] = d;
	d->tier_units[tier] += tier_room_run(places_room(p, tier), place);
	p->n_over[tier] += is_over(d, tier) && !was_over;
}

uint32_t places_take(struct places *p, const struct store_holding *h, enum store_tier tier)
{
	uint32_t place = tier_room_take(places_room(p, tier), places_units(p, h->model));
	struct store_domain *d = h->domain;

	charge(p, d, tier, place);
	if (d->most_units[tier] > d->max_units[tier] && d->tier_units[tier] < d->most_units[tier])
		d->most_units[tier] = is_over(d, tier) ? d->tier_units[tier] : d->max_units[tier];
	return place;
}

uint32_t places_take_passing(struct places *p, const struct store_model *m)
{
	uint32_t n = places_units(p, m), place = tier_room_take(&p->host->room, n);

	if (place != TIER_NONE)
		p->n_passing += n;
	return place;
}

void places_found(struct places *p, struct store_domain *d, enum store_tier tier, uint32_t place)
{
	charge(p, d, tier, place);
	if (d->tier_units[tier] > d->most_units[tier])
		d->most_units[tier] = d->tier_units[tier];
}

void places_ref(struct places *p, enum store_tier tier, uint32_t place)
{
	tier_room_ref(places_room(p, tier), place);
}

void places_unref(struct store *s, enum store_tier tier, uint32_t place)
{
	struct places *p = &s->places;
	struct store_domain *d = p->owners[tier][place];
	uint32_t n = tier_room_run(places_room(p, tier), place);
	bool gone = tier == STORE_FILE ? tier_catalog_unref(tier_file_catalog(p->file), place)
				       : tier_room_unref(&p->host->room, place);

	if (!gone)
		return;
	if (!d) {
		assert(tier == STORE_HOST);
		p->n_passing -= n;
		return;
	}
	p->owners[tier][place] = NULL;
	p->n_over[tier] -= is_over(d, tier) && d->tier_units[tier] - n <= d->max_units[tier];
	d->tier_units[tier] -= n;
	domain_prune(s, d);
}
