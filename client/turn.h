/*
 * turn.h - what a stream does in a lane between two kernels of the app, by kernels of the library's
 * own: where the device serves several processes at once (MPS), it comes to the memory operations
 * of their streams one after the other, but to a kernel that is there already at once.
 *
 * tell    writes a word when what the stream had before is complete; launched early, so that it is there by then
 * await   one thread that reads a word until it is reached, and more often another that is near. It takes room on a multiprocessor:
 *         to be used for short waits
 */
#ifndef COPPICE_CLIENT_TURN_H
#define COPPICE_CLIENT_TURN_H

#include "driver.h"

struct turn {
	void *module; /* owned; NULL: there are no such kernels, memory operations are to be used */
	void *tell, *await;
};

/* A word and what it becomes, or has reached. */
struct turn_word {
	uint64_t address, value;
	/* awaited: another that may reach it sooner, in the device's memory; 0: none */
	uint64_t near;
};

/* In the current context, of this device. Stays empty without MPS, where the device is older than
 * sm_90, and where the driver does not take the kernels. May block. */
void turn_load(const struct driver *driver, int device, struct turn *ret);
/* In the same context. An empty one is fine. */
void turn_unload(const struct driver *driver, struct turn *turn);
/* In the same context; of one that is not empty. CUDA's results. */
int turn_tell(const struct driver *driver, const struct turn *turn, void *stream,
	      struct turn_word word);
int turn_await(const struct driver *driver, const struct turn *turn, void *stream,
	       struct turn_word word);

#endif
