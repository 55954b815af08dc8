/* arenas.h - what the verbs arena_new, arena_seal and arena_free take and give. */
#ifndef COPPICED_ARENAS_H
#define COPPICED_ARENAS_H

#include "daemon/session/session.h"
#include "daemon/session/shm.h"
#include "kernels/backend.h"

struct arena_call {
	uint32_t arena; /* number in the session, given by the loop: arena_number.h */
	/* arena_new's and arena_seal's */
	void *base; /* lent; NULL: device memory, which the backend makes */
	uint64_t bytes;
	uint8_t device[BACKEND_DEVICE_BYTES]; /* UUID; all zero: any */
	struct backend_arena made; /* answered, of a device arena */
	int failed; /* the scheduler's: why it is not reached, while what was is given back */
	int unsent; /* the loop's: why its descriptor did not go */
};

/* Arena `number` of the session if it is in the given state, else NULL. */
struct shm *arena_find(struct session *s, uint32_t number, enum shm_state state);

#endif
