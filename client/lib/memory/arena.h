/* arena.h - memory that both sides see, of the host or of the device, and the way from a pointer to
 * (arena, offset). */
#ifndef COPPICE_CLIENT_ARENA_H
#define COPPICE_CLIENT_ARENA_H

#include "client/coppice.h"
#include "proto/must_check.h"
#include "device.h"

struct coppice_arena {
	struct coppice *c; /* a reference to its shell */
	uint32_t id; /* 0: weights, which no step may name */
	uint32_t weights; /* their number, for as long as they are mapped; 0: an arena */
	uint8_t *base; /* owned mapping; of a device arena the device's address */
	size_t bytes;
	struct device_memory device; /* owned; address 0: a host arena */
	_Atomic uint32_t n_refs; /* the library's until it is freed, and the app's */
	_Atomic size_t used; /* bytes that coppice_arena_alloc has given out, gaps included */
};

struct arena_place {
	uint32_t arena; /* 0: in none */
	uint64_t offset;
};

/* An arena that an address was found in; all zero: none yet. */
struct arena_span {
	const uint8_t *base;
	size_t bytes;
	uint32_t arena;
};

/* Where an address lies, in the arena that it is found in, which *last is afterwards.
 * Thread-safe. */
struct arena_place arena_find(struct coppice *c, const void *address, struct arena_span *last);

/* The same; last is looked at first. */
static inline struct arena_place arena_place_of(struct coppice *c, const void *address,
						struct arena_span *last)
{
	uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)last->base);

	if (offset >= last->bytes)
		return arena_find(c, address, last);
	return (struct arena_place){.arena = last->arena, .offset = offset};
}

/* Host memory for prompts' ids alone: it is there at once, whatever the backend is at. As
 * coppice_arena_new. */
MUST_CHECK int arena_new_for_ids(struct coppice *c, size_t bytes, struct coppice_arena **ret);

/* Weights that the daemon has lent, mapped: all but steps and pieces as an arena. The number is
 * given up with the mapping, also where this fails. what: the public function. Explains. */
MUST_CHECK int arena_of_weights(struct coppice *c, const char *what,
				const Coppice__WeightsMapReply *map, int fd,
				struct coppice_arena **ret);

/* Gives up the library's reference to all arenas without asking the daemon, for the session
 * ends. */
void arena_drop_all(struct coppice *c);

#endif
