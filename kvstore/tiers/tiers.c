/*
 * tiers.c - the lower tiers' beginning, turn and end, and their figures; see tier.h.
 *
 * A turn (store_tiers_poll) first takes note of what has ended, so that what it held may be used,
 * then begins what sequences wait for, and with the room that is left what is to be written.
 */
#include "tiers.h"

#include "dirty.h"
#include "forget.h"
#include "kvstore/tree/places.h"
#include "move.h"
#include "promote.h"
#include "restore.h"
#include "want.h"
#include "write.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t units_of(uint64_t bytes, uint64_t unit_bytes)
{
	return bytes ? bytes / unit_bytes : UINT64_MAX;
}

static bool config_ok(const struct store *s, const struct store_tiers_config *c)
{
	const struct tier_catalog *catalog = c->file ? tier_file_catalog(c->file) : NULL;

	return !s->tiers && s->all_namespaces.tqh_first == NULL && c->host && c->depth > 0 &&
	       (!catalog || (catalog->unit_bytes == c->host->unit_bytes &&
			     catalog->room.chunk_units == c->host->room.chunk_units));
}

static int owners_new(struct places *p, enum store_tier tier)
{
	const struct tier_room *room = places_room(p, tier);
	size_t n = (size_t)room->n_chunks * room->chunk_units;

	p->owners[tier] = calloc(n, sizeof(struct store_domain *));
	return p->owners[tier] ? 0 : -ENOMEM;
}

static void places_init(struct places *p, const struct store_tiers_config *c)
{
	*p = (struct places){.host = c->host, .file = c->file};
	p->max_passing = c->file ? c->depth : 0;
	for (enum store_tier i = STORE_HOST; i < STORE_TIERS; i++) {
		p->domain_units[i] = units_of(c->domain_bytes[i], c->host->unit_bytes);
		p->owner_units[i] = units_of(c->owner_bytes[i], c->host->unit_bytes);
	}
}

static void tiers_init(struct tiers *t, struct places *p, const struct store_tiers_config *c)
{
	places_init(p, c);
	t->places = p;
	t->mover = c->mover;
	t->depth = c->depth;
	t->long_paths = c->long_paths;
	for (enum tier_way i = 0; i < TIER_WAYS; i++)
		TAILQ_INIT(&t->queues[i].moves);
	TAILQ_INIT(&t->wants);
	TAILQ_INIT(&t->tails);
	TAILQ_INIT(&t->dirty);
}

/* What the caller gave stays the caller's. */
static void tiers_undo(struct store *s)
{
	free(s->places.owners[STORE_HOST]);
	free(s->places.owners[STORE_FILE]);
	s->places = (struct places){0};
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
	tiers_init(s->tiers, &s->places, config);
	int r = owners_new(&s->places, STORE_HOST);
	if (!r && config->file)
		r = owners_new(&s->places, STORE_FILE);
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
	pages_release(&s->pages);
	moves_retire(s);
	want_note_met(s, now_ns);
	promote_begin_moves(s);
	write_begin_moves(s);
	t->mover.kick(t->mover.ctx);
	if (s->places.file)
		tier_file_kick(s->places.file);
	uint32_t n = t->n_wants + t->n_dirty;
	for (enum tier_way way = 0; way < TIER_WAYS; way++)
		n += t->queues[way].n;
	return n > 0;
}

int store_tiers_fd(const struct store *s)
{
	return s->places.file ? tier_file_fd(s->places.file) : -1;
}

void store_tiers_flush(struct store *s)
{
	struct store_namespace *namespace;

	TAILQ_FOREACH (namespace, &s->all_namespaces, all)
		if (s->tiers && places_units(&s->places, namespace->holding->model) > 0)
			dirty_add_all(s, namespace->root);
}

static void tier_stats(const struct places *p, enum store_tier tier, struct store_tier_stats *ret)
{
	const struct tier_room *room = places_room(p, tier);
	uint64_t unit_bytes = p->host->unit_bytes, most = p->domain_units[tier], n_units;

	if (!room)
		return;
	n_units = (uint64_t)room->n_chunks * room->chunk_units;
	ret->used_bytes = room->n_used * unit_bytes;
	ret->capacity_bytes = n_units * unit_bytes;
	ret->domain_bytes = min_u64(most, n_units) * unit_bytes;
}

static void journal_stats(struct tier_file *file, struct store_tiers_stats *ret)
{
	const struct tier_catalog *c = tier_file_catalog(file);

	ret->journal_bytes = c->shares.bytes;
	ret->journal_capacity = tier_catalog_room(c);
	ret->n_file_models = c->n_kept_models;
}

void store_tiers_stats(const struct store *s, struct store_tiers_stats *ret)
{
	const struct tiers *t = s->tiers;

	*ret = (struct store_tiers_stats){0};
	if (!t)
		return;
	*ret = t->stats;
	tier_stats(&s->places, STORE_HOST, &ret->tiers[STORE_HOST]);
	tier_stats(&s->places, STORE_FILE, &ret->tiers[STORE_FILE]);
	if (s->places.file)
		journal_stats(s->places.file, ret);
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
	if (s->places.file)
		tier_file_catalog(s->places.file)->journal.failed = true;
	forget_all(s);
}

void tiers_free(struct store *s)
{
	struct tiers *t = s->tiers;

	if (!t)
		return;
	tier_file_close(s->places.file);
	tier_host_free(s->places.host);
	free(s->places.owners[STORE_HOST]);
	free(s->places.owners[STORE_FILE]);
	free(t);
	s->tiers = NULL;
}
