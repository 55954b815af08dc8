/*
 * shm.h - memory that a session shares with its client: arenas, and the segments of lanes.
 *
 * A session has a table of each; number n of the protocol is entry n - 1. A device arena's memory
 * is the backend's: nothing is mapped.
 *
 *      FREE -> NEW -> ADDING -> READY -> REMOVING -> FREE
 *
 * NEW: a lane, or a host arena, that is not sealed; nobody uses it. ADDING, REMOVING: the scheduler
 * is asked, or pages come and go (shm_pages.h).
 */
#ifndef COPPICED_SHM_H
#define COPPICED_SHM_H

#include "proto/must_check.h"
#include "shm_pages.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shm_state { SHM_FREE, SHM_NEW, SHM_ADDING, SHM_READY, SHM_REMOVING };

struct loan;

struct shm {
	enum shm_state state;
	void *map; /* owned, writable; NULL: device memory, or its pages are being taken back */
	size_t bytes;
	bool device; /* memory of the backend's device */
	struct loan *loan; /* of that, once it is the client's: owned until it ends (lent.h) */
	bool ids; /* for prompts' ids: the loop's alone */
	bool filled; /* by the client, who has to have brought all pages when it is sealed */
	struct shm_chore chore; /* about its pages */
	struct shm_chore beside; /* the same, while it is READY */
	bool coming; /* that is under way: not all of its pages are mapped yet */
	int fd; /* owned: of what is not sealed; else -1 */
	int notify_fd; /* owned: the daemon's end of a lane's completion descriptor; -1: none */
	uint16_t generation; /* counts: how often the entry has become free again */
};

/* Number of a free entry, 0: none. */
uint32_t shm_find_free(const struct shm *table, uint32_t n);
/* The entry of a number if it is in the given state; NULL where there is none. */
struct shm *shm_find_in(struct shm *table, uint32_t n, uint32_t number, enum shm_state state);
/* Makes a segment of bytes, NEW: its descriptor is for the client, to map it. 0 or -errno. */
MUST_CHECK int shm_new(struct shm *shm, const char *name, size_t bytes);
/* From now on nobody maps it writable, and nobody punches holes. 0, or -errno: -EPERM where it has
 * seals that are not the daemon's, -ENODATA where the client should have filled it. Of one that is
 * sealed: 0. */
MUST_CHECK int shm_seal(struct shm *shm);
/* Of whose chore done and user are set: brings all its pages, or takes it away. The mapping is the
 * chore's then. */
void shm_fill(struct shm *shm, struct shm_pages *pages, uid_t uid);
/* The same while it is used, and nobody is told. What is dropped behind it waits for it. */
void shm_fill_beside(struct shm *shm, struct shm_pages *pages, uid_t uid);
/* Nobody waits for what is being filled any more. */
void shm_fill_stop(struct shm *shm);
/* Can these bytes be read without a page's being fetched from swap? */
bool shm_is_there(const struct shm *shm, size_t offset, size_t bytes);
void shm_drop(struct shm *shm, struct shm_pages *pages, uid_t uid);
/* A device arena of bytes, ADDING. */
void shm_new_device(struct shm *shm, size_t bytes);
/* Gives a lane's segment a completion descriptor. ret_fd: the client's. 0 or -errno. */
MUST_CHECK int shm_notify_new(struct shm *shm, int *ret_fd);
/* Unmaps, closes; FREE. Of a free one: nothing. */
void shm_done(struct shm *shm);

#endif
