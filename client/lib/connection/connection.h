/*
 * connection.h - a session with the daemon: the control socket, the board, the lanes' segments, and
 * how the end of either side is noticed. call.h has requests and their answers.
 *
 * Two ways to be dead. In a forked child the page `alive` reads 0, which is looked at before
 * anything else, since locks may be held and segments are not mapped there. When the daemon has
 * hung up `broken` is set, for good.
 */
#ifndef COPPICE_CLIENT_CONNECTION_H
#define COPPICE_CLIENT_CONNECTION_H

#include "client/coppice.h"
#include "proto/must_check.h"
#include "client/lib/base/explain.h"
#include "client/lib/base/list.h"
#include "proto/abi.h"

#include <pthread.h>

struct pending;

/* A lane's memory as the connection knows it: streams that wait there go on when the daemon is
 * dead. Embedded in the lane. */
struct lane_segment {
	struct list link; /* in the connection's lanes */
	struct abi_lane *shared; /* owned mapping */
	size_t bytes;
};

struct coppice {
	_Atomic uint32_t n_refs; /* one until coppice_close, and one of each arena */
	_Atomic uint32_t closed; /* 1: but for the shell of it */
	_Atomic uint32_t *alive; /* owned page; wiped in a forked child */
	uint64_t key; /* of explanations */
	struct abi_board *board; /* owned mapping, read-only */
	int socket; /* owned */
	int doorbell; /* owned eventfd; wakes the scheduler */
	uint64_t session; /* the daemon's number of this connection */
	_Atomic uint32_t broken; /* 1: the daemon hung up */
	/* Handles of the daemon's device memory: where there ever was one, the daemon waits to hear
	 * that all are closed. */
	_Atomic uint32_t n_device_ever, n_device_open;
	_Atomic uint64_t probed_ns; /* when the socket was last looked at for a hang-up */

	/* call.c's; the lock is of the eight below */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	struct pending *pending; /* requests without an answer; their callers' */
	uint64_t last_id;
	bool reading; /* somebody reads the socket, into inbox */
	uint8_t *inbox; /* owned, CHANNEL_MAX_BYTES; the reader's */
	uint32_t n_to_poll; /* answers that are there and that nobody has polled for yet */
	int poll_fd; /* owned epoll of the socket and the next; -1: nobody has asked for it */
	int answers_fd; /* owned eventfd, readable while n_to_poll is not 0; -1: as poll_fd */

	pthread_mutex_t lists_lock; /* of the six below */
	pthread_t watcher; /* watch.c's, where watch_fd is one */
	int watch_fd; /* owned eventfd: it is to end; -1: no lane has had a stream */
	struct driver *driver; /* owned; NULL: nothing has needed it */
	struct list lanes; /* struct lane_segment; the lanes are owned */
	struct arena_set {
		struct coppice_arena **items; /* owned, by address */
		size_t n, capacity;
	} arenas;
	struct model_set {
		struct model *items; /* owned */
		size_t n;
	} models;

	/* stream.c's; near_lock is of the two below */
	pthread_mutex_t near_lock;
	struct coppice_arena *near_arena; /* one of arenas; NULL: there is none */
	uint64_t near_used_bytes;

	/* seq.c's; prompt_lock is held while a prompt's ids lie in the arena */
	pthread_mutex_t prompt_lock;
	struct coppice_arena *prompt_arena; /* one of arenas; NULL before the first prompt */
};

/* 0, -EOWNERDEAD in a forked child, -ECONNRESET once the daemon is known to be gone. Explains.
 * Never blocks. */
MUST_CHECK int connection_check(struct coppice *c);
/* The same, and looks whether the daemon has hung up if that was last done over 100 ms ago. */
MUST_CHECK int connection_check_peer(struct coppice *c);
/* Looks now. */
MUST_CHECK int connection_probe(struct coppice *c);
/* From now on it is known that the daemon is gone, and streams that wait for it go on. Any
 * thread. */
void connection_lose(struct coppice *c);
/* The same. Explains; returns -ECONNRESET. */
int connection_break(struct coppice *c);
/* True in a forked child: segments are not mapped, locks may be held by threads that are not
 * there. */
bool connection_is_foreign(const struct coppice *c);

/* Neither closed nor a forked child's. */
bool connection_is_open(const struct coppice *c);

/* The shell of a connection, which outlives it while arenas are referenced: the page `alive`, the
 * locks, the driver. The last reference frees it. */
void connection_ref(struct coppice *c);
void connection_unref(struct coppice *c);

/* Unmaps a segment, but in a forked child, where something else may lie there. */
void connection_unmap(const struct coppice *c, void *map, size_t bytes);
/* The lane's segment is known from now on, or no longer. Any thread. */
void connection_add_lane(struct coppice *c, struct lane_segment *segment);
void connection_remove_lane(struct coppice *c, struct lane_segment *segment);

#endif
