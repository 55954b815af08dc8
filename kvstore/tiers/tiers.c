/* tiers.c - places of lower tiers, and the tiers' beginning, turn and end; see tiers.h and
 * tier.h. */
#include "tiers.h"

#include "promote.h"
#include "kvstore/tree/residency.h"
#include "move.h"
#include "restore.h"
#include "kvstore/tree/namespace.h"
#include "demote.h"
#include "write.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define PATH_FIRST 64u

struct tier_room *tiers_room(const struct tiers *t, enum store_tier tier)
{
	if (tier == STORE_HOST)
		return &t->host->room;
	return t->file ? &tier_file_catalog(t->file)->room : NULL;
}

uint32_t tiers_units(const struct tiers *t, const struct store_model *m)
{
	uint64_t unit = t->host->unit_bytes;
	uint64_t n = m->lent.page_bytes / unit + (m->lent.page_bytes % unit > 0);

	return n <= t->host->room.chunk_units ? (uint32_t)n : 0;
}

uint32_t tiers_take_passing(struct store *s, struct store_model *m)
{
	struct tiers *t = s->tiers;
	uint32_t n = tiers_units(t, m), place = tier_room_take(&t->host->room, n);

	if (place != TIER_NONE)
		t->n_passing += n;
	return place;
}

void tiers_charge(struct tiers *t, struct store_domain *d, enum store_tier tier, uint32_t place)
{
	t->owners[tier][place] = d;
	d->tier_units[tier] += tier_room_run(tiers_room(t, tier), place);
}

/* Host memory that is left for pages on their way from the device to the file: these go before the
 * others, so that what waits for them in host memory may go too. */
static uint64_t reserve_of(const struct tiers *t, enum store_tier tier, uint32_t n_units)
{
	uint64_t most = (uint64_t)t->host->room.n_chunks * t->host->room.chunk_units / 4;
	uint64_t wanted = (uint64_t)t->depth * n_units;

	if (tier != STORE_HOST || !t->file || t->stats.error)
		return 0;
	return wanted < most ? wanted : most;
}

bool tiers_over_limit(const struct store *s, const struct store_holding *h, enum store_tier tier)
{
	return h->domain->tier_units[tier] + tiers_units(s->tiers, h->model) >
	       s->tiers->domain_units[tier];
}

bool tiers_has_room(const struct store *s, const struct store_holding *h, enum store_tier tier)
{
	const struct tier_room *room = tiers_room(s->tiers, tier);
	uint32_t n = tiers_units(s->tiers, h->model);
	uint64_t n_all = (uint64_t)room->n_chunks * room->chunk_units;
	uint32_t n_passing = tier == STORE_HOST ? s->tiers->n_passing : 0;

	return !tiers_over_limit(s, h, tier) && tier_room_has(room, n) &&
	       room->n_used - n_passing + n + reserve_of(s->tiers, tier, n) <= n_all;
}

uint32_t tiers_take(struct store *s, struct store_holding *h, enum store_tier tier,
		    const struct store_node *avoid)
{
	while (!tiers_has_room(s, h, tier))
		if (!spill_reclaim(s, h, tier, avoid))
			return TIER_NONE;
	uint32_t place =
		tier_room_take(tiers_room(s->tiers, tier), tiers_units(s->tiers, h->model));
	tiers_charge(s->tiers, h->domain, tier, place);
	return place;
}

void tiers_ref(struct tiers *t, enum store_tier tier, uint32_t place)
{
	tier_room_ref(tiers_room(t, tier), place);
}

void tiers_unref(struct store *s, enum store_tier tier, uint32_t place)
{
	struct tiers *t = s->tiers;
	struct store_domain *d = t->owners[tier][place];
	uint32_t n = tier_room_run(tiers_room(t, tier), place);
	bool gone = tier == STORE_FILE ? tier_catalog_unref(tier_file_catalog(t->file), place)
				       : tier_room_unref(&t->host->room, place);

	if (!gone)
		return;
	if (!d) {
		assert(tier == STORE_HOST);
		t->n_passing -= n;
		return;
	}
	t->owners[tier][place] = NULL;
	d->tier_units[tier] -= n;
	domain_settle(s, d);
}

static int path_reserve(struct tiers *t, uint32_t n)
{
	if (n <= t->path_capacity)
		return 0;
	uint32_t capacity = n < 2 * t->path_capacity ? 2 * t->path_capacity : n;
	struct store_node **path = realloc(t->path, capacity * sizeof(struct store_node *));
	if (!path)
		return -ENOMEM;
	t->path = path;
	t->path_capacity = capacity;
	return 0;
}

uint32_t tiers_path(struct tiers *t, struct store_node *n)
{
	uint32_t depth = 0;

	for (const struct store_node *at = n; at->parent; at = at->parent)
		depth++;
	if (path_reserve(t, depth))
		return 0;
	for (uint32_t i = depth; i-- > 0; n = n->parent)
		t->path[i] = n;
	return depth;
}

static uint64_t units_of(uint64_t bytes, uint64_t unit_bytes)
{
	return bytes ? bytes / unit_bytes : UINT64_MAX;
}

static bool config_ok(const struct store *s, const struct store_tiers_config *c)
{
	const struct tier_catalog *catalog = c->file ? tier_file_catalog(c->file) : NULL;

	return !s->tiers && s->all_spaces.tqh_first == NULL && c->host && c->depth > 0 &&
	       (!catalog || (catalog->unit_bytes == c->host->unit_bytes &&
			     catalog->room.chunk_units == c->host->room.chunk_units));
}

static int owners_new(struct tiers *t, enum store_tier tier)
{
	const struct tier_room *room = tiers_room(t, tier);
	size_t n = (size_t)room->n_chunks * room->chunk_units;

	t->owners[tier] = calloc(n, sizeof(struct store_domain *));
	return t->owners[tier] ? 0 : -ENOMEM;
}

static void tiers_init(struct tiers *t, const struct store_tiers_config *c)
{
	t->mover = c->mover;
	t->host = c->host;
	t->file = c->file;
	t->depth = c->depth;
	t->long_paths = c->long_paths;
	for (enum store_tier i = STORE_HOST; i < STORE_TIERS; i++)
		t->domain_units[i] = units_of(c->domain_bytes[i], c->host->unit_bytes);
	for (enum tier_way i = 0; i < TIER_WAYS; i++)
		TAILQ_INIT(&t->queues[i].moves);
	TAILQ_INIT(&t->wants);
	TAILQ_INIT(&t->tails);
	TAILQ_INIT(&t->dirty);
}

/* What the caller gave stays the caller's. */
static void tiers_undo(struct store *s)
{
	free(s->tiers->owners[STORE_HOST]);
	free(s->tiers->owners[STORE_FILE]);
	free(s->tiers);
	s->tiers = NULL;
}

int store_tiers_attach(struct store *s, const struct store_tiers_config *config,
		       struct store_tiers_found *ret)
{
	struct store_tiers_found found = {0};

	if (!config_ok(s, config))
		return -EINVAL;
	s->tiers = calloc(1, sizeof(*s->tiers));
	if (!s->tiers)
		return -ENOMEM;
	tiers_init(s->tiers, config);
	int r = owners_new(s->tiers, STORE_HOST);
	if (!r && config->file)
		r = owners_new(s->tiers, STORE_FILE);
	if (!r && config->file)
		r = restore_all(s, &found);
	if (!r && config->file)
		found.register_error =
			tier_file_register(config->file, config->host->base, config->host->bytes);
	if (r) {
		tiers_undo(s);
		return r;
	}
	*ret = found;
	return 0;
}

bool store_tiers_poll(struct store *s, uint64_t now_ns)
{
	struct tiers *t = s->tiers;

	if (!t)
		return false;
	pages_settle(&s->pages);
	moves_retire(s);
	fetch_look(s, now_ns);
	fetch_begin_moves(s);
	write_begin_moves(s);
	t->mover.kick(t->mover.ctx);
	if (t->file)
		tier_file_kick(t->file);
	uint32_t n = t->n_wants + t->n_dirty;
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		n += t->queues[way].n;
	return n > 0;
}

int store_tiers_fd(const struct store *s)
{
	return s->tiers && s->tiers->file ? tier_file_fd(s->tiers->file) : -1;
}

void store_tiers_flush(struct store *s)
{
	struct store_space *space;

	TAILQ_FOREACH (space, &s->all_spaces, all)
		if (s->tiers && tiers_units(s->tiers, space->holding->model) > 0)
			write_want_all(s, space->root);
}

static void tier_stats(const struct tiers *t, enum store_tier tier, struct store_tier_stats *ret)
{
	const struct tier_room *room = tiers_room(t, tier);
	uint64_t unit_bytes = t->host->unit_bytes;

	if (!room)
		return;
	ret->used_bytes = room->n_used * unit_bytes;
	ret->capacity_bytes = (uint64_t)room->n_chunks * room->chunk_units * unit_bytes;
}

void store_tiers_stats(const struct store *s, struct store_tiers_stats *ret)
{
	const struct tiers *t = s->tiers;

	*ret = (struct store_tiers_stats){0};
	if (!t)
		return;
	*ret = t->stats;
	tier_stats(t, STORE_HOST, &ret->tiers[STORE_HOST]);
	tier_stats(t, STORE_FILE, &ret->tiers[STORE_FILE]);
	ret->n_wants = t->n_wants;
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		ret->n_moves += t->queues[way].n;
}

void tiers_stop(struct store *s)
{
	struct tiers *t = s->tiers;

	if (!t)
		return;
	moves_drain(s);
	/* From here on what goes from the tree stays in the file. */
	if (t->file)
		tier_file_catalog(t->file)->journal.failed = true;
	lower_cut_all(s);
}

void tiers_free(struct store *s)
{
	struct tiers *t = s->tiers;

	if (!t)
		return;
	tier_file_close(t->file);
	tier_host_free(t->host);
	free(t->owners[STORE_HOST]);
	free(t->owners[STORE_FILE]);
	free(t->path);
	free(t);
	s->tiers = NULL;
}
