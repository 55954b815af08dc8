/*
 * connection.h - a session with the daemon: the control socket, the board, and what hangs on them.
 *
 * Requests of several threads may be outstanding at once. Who finds nobody reading reads replies
 * for all, hands each to the request of its id, and passes the reading on when its own has come.
 * There is no thread for it.
 *
 * Two ways to be dead. In a forked child the page `alive` reads 0, which is looked at before
 * anything else, since locks may be held and segments are not mapped there. When the daemon has
 * hung up `broken` is set, for good.
 */
#ifndef COPPICE_CLIENT_CONNECTION_H
#define COPPICE_CLIENT_CONNECTION_H

#include "coppice.h"
#include "explain.h"
#include "list.h"
#include "control.pb-c.h"
#include "proto/abi.h"
#include "proto/channel.h"

#include <pthread.h>

struct pending;

struct coppice {
	_Atomic uint32_t *alive; /* owned page; wiped in a forked child */
	uint64_t key; /* of explanations */
	struct abi_board *board; /* owned mapping, read-only */
	int socket; /* owned */
	int bell; /* owned eventfd; wakes the scheduler */
	uint32_t daemon_pid; /* in its own namespace */
	_Atomic uint32_t broken; /* 1: the daemon hung up */
	/* 1: device arenas were opened; the daemon waits to hear that they are closed */
	_Atomic uint32_t has_device;
	_Atomic uint64_t probed_ns; /* when the socket was last looked at for a hang-up */

	pthread_mutex_t lock; /* of the four below */
	pthread_cond_t answered;
	struct pending *pending; /* requests without an answer; each on its caller's stack */
	uint64_t last_id;
	bool reading; /* somebody reads the socket, into inbox */
	uint8_t *inbox; /* owned, CHANNEL_MAX_BYTES; the reader's */

	pthread_mutex_t lists_lock; /* of the four below */
	struct driver *driver; /* owned; NULL: nothing has needed it */
	struct list lanes; /* owned struct coppice_lane */
	struct arena_set {
		struct coppice_arena **items; /* owned, by address */
		size_t n, capacity;
	} arenas;
	struct model_set {
		struct model *items; /* owned */
		size_t n;
	} models;

	pthread_mutex_t near_lock; /* of the two below */
	struct coppice_arena *near_arena; /* one of arenas; NULL: there is none */
	uint64_t near_used_bytes;

	pthread_mutex_t prompt_lock; /* held while a prompt's ids lie in the arena */
	struct coppice_arena *prompt_arena; /* one of arenas; NULL before the first prompt */
};

/* A reply and the descriptors that came with it. All owned. */
struct answer {
	Coppice__Reply *reply;
	int fds[CHANNEL_MAX_FDS];
	unsigned n_fds;
};
#define ANSWER_NONE ((struct answer){.reply = NULL})

void answer_done(struct answer *answer);
/* The i-th descriptor becomes the caller's; -1 where there is none. */
int answer_take_fd(struct answer *answer, unsigned i);
#define CLEANUP_ANSWER __attribute__((cleanup(answer_done)))

struct call {
	const char *what; /* the public function, for the sentence */
	Coppice__Request request; /* but its id */
	uint64_t timeout_ns; /* for the answer; COPPICE_FOREVER */
};

/* 0, -EOWNERDEAD in a forked child, -ECONNRESET once the daemon is known to be gone. Explains.
 * Never blocks. */
int connection_check(struct coppice *c);
/* The same, and looks whether the daemon has hung up if that was last done over 100 ms ago. */
int connection_check_peer(struct coppice *c);
/* Looks now. */
int connection_probe(struct coppice *c);
/* True in a forked child: segments are not mapped, locks may be held by threads that are not
 * there. */
bool connection_is_foreign(const struct coppice *c);
/* Unmaps a segment, but in a forked child, where something else may lie there. */
void connection_unmap(const struct coppice *c, void *map, size_t bytes);

/* Sends and waits for the answer. *ret is set whenever the daemon has answered, also with a code;
 * release it with answer_done either way. 0, the daemon's code, -ECONNRESET, -EOWNERDEAD,
 * -ETIMEDOUT. Explains. */
int connection_call(struct coppice *c, struct call *call, struct answer *ret);
/* The session's last words: nothing of the device is open any more. Does not block. */
void connection_leave(struct coppice *c);
/* The daemon's answer lacks what it must have. Explains; returns -EPROTO. */
int connection_bad_answer(struct coppice *c, const char *what);

#endif
