/*
 * mover.h - a thread that copies pages between the pool and host memory, beside batches.
 *
 *      caller --mover_add--> [ copy | copy | ... ] --one after the other--> memcpy --> mover_done
 *
 * Copies of both ways are one queue: a page that leaves is read before another's bytes come to its
 * place. Who is about to write to pool memory otherwise, or gives it up, waits for the copies that
 * concern it (mover_await).
 *
 * Calls come from one thread.
 */
#ifndef COPPICE_CPU_MOVER_H
#define COPPICE_CPU_MOVER_H

#include "proto/must_check.h"

#include <stdint.h>

struct mover;

enum mover_way { MOVER_DOWN, MOVER_UP, MOVER_WAYS };

struct mover_copy {
	enum mover_way way;
	char *pool, *host;
	uint64_t bytes;
};

/* Starts the thread. 0, -ENOMEM or -EAGAIN. */
MUST_CHECK int mover_new(struct mover **ret);
/* Ends what was asked for first. NULL is fine. */
void mover_free(struct mover *m);

/* Returns the copy's token: copies of a way are counted from 1 and end in order. Blocks while the
 * queue is full. */
uint64_t mover_add(struct mover *m, const struct mover_copy *copy);
/* Token of the newest of a way that has ended, 0: none. */
uint64_t mover_done(const struct mover *m, enum mover_way way);
/* Until no copy reads or writes this pool memory any more. Blocks. */
void mover_await(struct mover *m, const char *pool, uint64_t bytes);

#endif
