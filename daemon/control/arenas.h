/* arenas.h - what the verbs arena_new, arena_seal and arena_free take and give. */
#ifndef COPPICED_ARENAS_H
#define COPPICED_ARENAS_H

#include "kernels/backend.h"

struct arena_call {
	uint32_t arena; /* number in the session, from 1, given by the loop */
	/* arena_new's and arena_seal's */
	void *base; /* lent; NULL: device memory, which the backend makes */
	uint64_t bytes;
	uint8_t device[BACKEND_DEVICE_BYTES]; /* UUID; all zero: any */
	struct backend_arena made; /* answered, of a device arena */
	int unsent; /* the loop's: why its descriptor did not go */
};

#endif
