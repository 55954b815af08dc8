/*
 * tier_room.c - chunks by length of run.
 *
 * A chunk is in the list of empty ones, or in that of its length while it has a free run, or in
 * none. Of a chunk the lowest free run is taken, found from a hint on that only a run that is freed
 * sets back.
 */
#include "tier_room.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int tier_room_init(struct tier_room *room, uint64_t n_units, uint32_t chunk_units)
{
	if (chunk_units == 0 || n_units < chunk_units)
		return -EINVAL;
	if (n_units >= TIER_NONE)
		return -EFBIG;
	*room = (struct tier_room){
		.n_chunks = (uint32_t)(n_units / chunk_units),
		.chunk_units = chunk_units,
	};
	room->chunks = calloc(room->n_chunks, sizeof(*room->chunks));
	room->refs = calloc((size_t)room->n_chunks * chunk_units, sizeof(*room->refs));
	room->open = calloc((size_t)chunk_units + 1, sizeof(*room->open));
	if (!room->chunks || !room->refs || !room->open) {
		tier_room_done(room);
		return -ENOMEM;
	}
	for (uint32_t i = room->n_chunks; i-- > 0;)
		LIST_INSERT_HEAD(&room->empty, &room->chunks[i], link);
	return 0;
}

void tier_room_done(struct tier_room *room)
{
	free(room->chunks);
	free(room->refs);
	free(room->open);
	*room = (struct tier_room){0};
}

static uint32_t chunk_runs(const struct tier_room *room, const struct room_chunk *c)
{
	return room->chunk_units / c->run_units;
}

static uint32_t position_of(const struct tier_room *room, const struct room_chunk *c, uint32_t run)
{
	return (uint32_t)(c - room->chunks) * room->chunk_units + run * c->run_units;
}

static struct room_chunk *chunk_of(const struct tier_room *room, uint32_t place)
{
	assert(place / room->chunk_units < room->n_chunks);
	return &room->chunks[place / room->chunk_units];
}

static void chunk_open(struct tier_room *room, struct room_chunk *c, uint32_t run_units)
{
	LIST_REMOVE(c, link);
	c->run_units = run_units;
	c->hint = 0;
	LIST_INSERT_HEAD(&room->open[run_units], c, link);
}

static void run_use(struct tier_room *room, struct room_chunk *c, uint32_t place)
{
	room->refs[place] = 1;
	room->n_used += c->run_units;
	if (++c->n_used == chunk_runs(room, c))
		LIST_REMOVE(c, link);
}

uint32_t tier_room_take(struct tier_room *room, uint32_t n_units)
{
	assert(n_units > 0 && n_units <= room->chunk_units);
	if (LIST_EMPTY(&room->open[n_units])) {
		if (LIST_EMPTY(&room->empty))
			return TIER_NONE;
		chunk_open(room, LIST_FIRST(&room->empty), n_units);
	}
	struct room_chunk *c = LIST_FIRST(&room->open[n_units]);
	while (room->refs[position_of(room, c, c->hint)] > 0)
		c->hint++;
	uint32_t place = position_of(room, c, c->hint++);
	run_use(room, c, place);
	return place;
}

bool tier_room_has(const struct tier_room *room, uint32_t n_units)
{
	return !LIST_EMPTY(&room->open[n_units]) || !LIST_EMPTY(&room->empty);
}

bool tier_room_claim(struct tier_room *room, uint32_t place, uint32_t n_units)
{
	if (n_units == 0 || n_units > room->chunk_units ||
	    place / room->chunk_units >= room->n_chunks)
		return false;
	struct room_chunk *c = chunk_of(room, place);
	uint32_t at = place % room->chunk_units;
	if ((c->run_units && c->run_units != n_units) || at % n_units != 0 ||
	    at + n_units > room->chunk_units || room->refs[place] > 0)
		return false;
	if (c->run_units == 0)
		chunk_open(room, c, n_units);
	run_use(room, c, place);
	return true;
}

void tier_room_ref(struct tier_room *room, uint32_t place)
{
	assert(room->refs[place] > 0);
	room->refs[place]++;
}

bool tier_room_unref(struct tier_room *room, uint32_t place)
{
	struct room_chunk *c = chunk_of(room, place);
	uint32_t run = place % room->chunk_units / c->run_units;

	assert(room->refs[place] > 0);
	if (--room->refs[place] > 0)
		return false;
	room->n_used -= c->run_units;
	if (c->n_used-- == chunk_runs(room, c))
		LIST_INSERT_HEAD(&room->open[c->run_units], c, link);
	if (run < c->hint)
		c->hint = run;
	if (c->n_used == 0) {
		LIST_REMOVE(c, link);
		c->run_units = 0;
		LIST_INSERT_HEAD(&room->empty, c, link);
	}
	return true;
}

uint32_t tier_room_run(const struct tier_room *room, uint32_t place)
{
	return chunk_of(room, place)->run_units;
}
