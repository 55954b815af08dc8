/*
 * arena_room.h - how much more of arenas a session may have, and which limit is in the way.
 */
#ifndef COPPICED_ARENA_ROOM_H
#define COPPICED_ARENA_ROOM_H

#include "daemon/session/session.h"

#define ARENA_GRAIN_BYTES (UINT64_C(2) << 20)

enum { ARENA_HOST = 0, ARENA_DEVICE = 1 };

/* What limits the next arena of a kind. */
struct arena_room {
	uint64_t bytes;
	const char *whose, *key; /* static: a sentence's begin, the limit's name */
};

/* Is there room for so many bytes, in whole grains? */
bool arena_fits(const struct arena_room *room, uint64_t bytes, uint64_t grain);
/* For an arena of so many bytes, of a kind. Where there is none on a device, and that could help,
 * it is looked who has closed what was freed. */
struct arena_room arena_room(const struct session *session, uint32_t kind, uint64_t bytes);

#endif
