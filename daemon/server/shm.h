/*
 * shm.h - memory that a session shares with its client: arenas, and the segments of lanes.
 *
 * A session has a table of each; number n of the protocol is entry n - 1. A device arena's memory
 * is the backend's: nothing is mapped.
 *
 *      FREE -> ADDING -> READY -> REMOVING -> FREE       ADDING, REMOVING: the scheduler has been asked
 */
#ifndef COPPICED_SEGMENT_H
#define COPPICED_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum segment_state { SEGMENT_FREE, SEGMENT_ADDING, SEGMENT_READY, SEGMENT_REMOVING };

struct segment {
	enum segment_state state;
	void *map; /* owned, writable; NULL: device memory */
	size_t bytes;
	int fd; /* owned: a lane's memory, where a guardian wants it; -1: none */
	bool kept; /* the guardian knows of it */
	int notify_fd; /* owned: the daemon's end of a lane's completion descriptor; -1: none */
};

/* Number of a free entry, 0: none. */
uint32_t segment_find_free(const struct segment *table, uint32_t n);
/* The entry of a number that is READY; NULL where there is none. */
struct segment *segment_find(struct segment *table, uint32_t n, uint32_t number);
/* Makes a segment of bytes, ADDING. ret_fd: the caller's, for the client. 0 or -errno. */
int segment_new(struct segment *segment, const char *name, size_t bytes, int *ret_fd);
/* A device arena of bytes, ADDING. */
void segment_new_device(struct segment *segment, size_t bytes);
/* Keeps a copy of the segment's descriptor. 0 or -errno. */
int segment_keep_fd(struct segment *segment, int fd);
/* Gives a lane's segment a completion descriptor. ret_fd: as above. 0 or -errno. */
int segment_notify_new(struct segment *segment, int *ret_fd);
/* Unmaps, closes; FREE. Of a free one: nothing. */
void segment_done(struct segment *segment);

#endif
