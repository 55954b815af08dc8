/*
 * doorbell.h - what a sleeping scheduler waits for: edges on eventfds, the loop's and one of each
 * session.
 *
 * Edges, because the daemon never reads a descriptor that a client holds. A doorbell rung while
 * nobody sleeps makes the next sleep end at once; that is all.
 */
#ifndef COPPICED_DOORBELL_H
#define COPPICED_DOORBELL_H

#include "proto/must_check.h"

#include <stdint.h>

struct doorbell {
	int epoll; /* owned descriptor: where all are waited for */
	int fd; /* owned eventfd: the loop's doorbell */
};

MUST_CHECK int doorbell_init(struct doorbell *d); /* 0 or -errno; then it is to be done too */
void doorbell_done(struct doorbell *d);
/* fd is lent until doorbell_remove. 0 or -errno. */
MUST_CHECK int doorbell_add(struct doorbell *d, int fd);
void doorbell_remove(struct doorbell *d, int fd);
/* Until a doorbell, or for so long; UINT64_MAX: a doorbell. */
void doorbell_wait(struct doorbell *d, uint64_t for_ns);
/* Any thread: rings the loop's doorbell. */
void doorbell_ring(struct doorbell *d);

#endif
