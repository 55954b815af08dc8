/*
 * shm.h - memory that a session shares with its client: arenas, and the segments of lanes.
 *
 * A session has a table of each; number n of the protocol is entry n - 1. A device arena's memory
 * is the backend's: nothing is mapped.
 *
 *      FREE -> ADDING -> READY -> REMOVING -> FREE     ADDING, REMOVING: the scheduler is asked
 */
#ifndef COPPICED_SHM_H
#define COPPICED_SHM_H

#include "daemon/base/must_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shm_state { SHM_FREE, SHM_ADDING, SHM_READY, SHM_REMOVING };

struct shm {
	enum shm_state state;
	void *map; /* owned, writable; NULL: device memory */
	size_t bytes;
	int fd; /* owned: a lane's memory, where a guardian wants it; -1: none */
	bool guarded; /* the guardian knows of it */
	int notify_fd; /* owned: the daemon's end of a lane's completion descriptor; -1: none */
};

/* Number of a free entry, 0: none. */
uint32_t shm_find_free(const struct shm *table, uint32_t n);
/* The entry of a number that is READY; NULL where there is none. */
struct shm *shm_find(struct shm *table, uint32_t n, uint32_t number);
/* Makes a segment of bytes, ADDING. ret_fd: the caller's, for the client. 0 or -errno. */
MUST_CHECK int shm_new(struct shm *shm, const char *name, size_t bytes, int *ret_fd);
/* A device arena of bytes, ADDING. */
void shm_new_device(struct shm *shm, size_t bytes);
/* Keeps a copy of the segment's descriptor. 0 or -errno. */
MUST_CHECK int shm_keep_fd(struct shm *shm, int fd);
/* Gives a lane's segment a completion descriptor. ret_fd: as above. 0 or -errno. */
MUST_CHECK int shm_notify_new(struct shm *shm, int *ret_fd);
/* Unmaps, closes; FREE. Of a free one: nothing. */
void shm_done(struct shm *shm);

#endif
