/*
 * tier_room.h - where in a lower tier pages lie: units of one size, in runs as long as a model's
 * page needs.
 *
 *      chunk 0: pages of 4 units    chunk 1: free    chunk 2: pages of 3 units, the last unit idle
 *      [ 0 - 3 | 4 - 7 | ... ]      [           ]    [ 512 - 514 | 515 - 517 | ... ]
 *
 * A place is the first unit of its run. It counts those who refer to it and is free again with the
 * last. A chunk has runs of one length, so that what goes leaves room for what comes; an empty
 * chunk takes any length.
 */
#ifndef COPPICE_KVSTORE_TIER_ROOM_H
#define COPPICE_KVSTORE_TIER_ROOM_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define TIER_NONE UINT32_MAX /* no place */

LIST_HEAD(room_chunks, room_chunk);

struct room_chunk {
	uint32_t run_units; /* 0: the chunk is empty */
	uint32_t n_used; /* runs */
	uint32_t hint; /* a run that may be free; those before it are used */
	/* in room.empty, or in room.open[run_units] while a run is free */
	LIST_ENTRY(room_chunk) link;
};

struct tier_room {
	uint32_t n_chunks;
	uint32_t chunk_units; /* the longest run */
	uint32_t n_used; /* units */
	struct room_chunk *chunks; /* owned */
	uint32_t *refs; /* owned: [unit], of places */
	struct room_chunks empty;
	struct room_chunks *open; /* owned: [chunk_units + 1] */
};

/* Of n_units as many as make whole chunks. 0, -ENOMEM, -EINVAL where that is none, -EFBIG where it
 * is too many. */
MUST_CHECK int tier_room_init(struct tier_room *room, uint64_t n_units, uint32_t chunk_units);
void tier_room_done(struct tier_room *room); /* one that is all zero is fine */

/* A free run with one reference; TIER_NONE: there is none. n_units <= chunk_units. */
uint32_t tier_room_take(struct tier_room *room, uint32_t n_units);
/* Would tier_room_take find one? */
bool tier_room_has(const struct tier_room *room, uint32_t n_units);
/* The run at this place, or false where it is used or no place of such a run. */
bool tier_room_claim(struct tier_room *room, uint32_t place, uint32_t n_units);
void tier_room_ref(struct tier_room *room, uint32_t place);
/* One reference less. Returns whether the place is free now. */
bool tier_room_unref(struct tier_room *room, uint32_t place);
/* Length of the run of a used place. */
uint32_t tier_room_run(const struct tier_room *room, uint32_t place);

#endif
