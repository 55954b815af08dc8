/*
 * session.h - one connection and everything that its client has.
 *
 *      CONNECTED --hello--> JOINING --scheduler--> OPEN
 *           \                  |                    |
 *            +-----------------+------- end --------+--> ENDING --> freed
 *
 * A session ends at hang-up, when its peer's process is gone, at a breach of protocol, when it does
 * not read its replies, or when the daemon stops. ENDING: nothing is read, no reply is sent. It is
 * freed by session_settle once its loop operations have had their last callbacks and all its
 * requests are back, SESSION_END among them; until then the scheduler may use its memory. Device
 * arenas that the client did not say to have closed are kept until its process is gone, and the
 * session's bones with them. Only callbacks of the loop call session_settle, after which the
 * session may be gone.
 */
#ifndef COPPICED_SESSION_H
#define COPPICED_SESSION_H

#include "daemon/loop/loop.h"
#include "proto/channel.h"
#include "request.h"
#include "shm.h"

#include <sys/queue.h>
#include <sys/uio.h>

struct server;

enum session_state { SESSION_CONNECTED, SESSION_JOINING, SESSION_OPEN, SESSION_ENDING };

struct session {
	TAILQ_ENTRY(session) entry;
	struct server *server; /* borrowed */
	enum session_state state;
	bool joined; /* counts as a session, not as a mere connection */
	bool privileged; /* root or the daemon's own user */
	bool has_left; /* it has no device arena open, or is no more */
	uint64_t id;
	int fd; /* owned */
	/* owned eventfd: the client rings it, the scheduler listens; -1 before hello */
	int bell_fd;
	struct channel_peer peer; /* its pidfd owned */
	char name[64];
	uint64_t connected_ns;
	struct loop_op receive; /* packets, into packet */
	struct loop_op gone; /* the peer's pidfd */
	struct sched_session *sched; /* the scheduler's; NULL: none */
	struct request end;
	bool end_posted; /* and not back */
	uint32_t n_requests; /* posted, not over */
	struct segment *arenas; /* owned, [config->max_arenas] */
	struct segment *lanes; /* owned, [config->max_lanes] */
	uint64_t arena_bytes; /* host memory */
	uint64_t device_bytes; /* device memory */
	struct iovec iov;
	struct msghdr msg;
	uint8_t packet[CHANNEL_MAX_BYTES];
};

TAILQ_HEAD(session_list, session);

/* A connection has come; fd becomes the session's. What goes wrong ends it, and is said in the
 * log. */
void session_new(struct server *server, int fd);
/* The limit that keeps this session from joining, as a sentence; NULL: it may. */
const char *session_refusal(const struct session *session);
/* The scheduler has taken it (or not: NULL). Reads on, or ends. */
void session_opened(struct session *session, struct sched_session *sched);
/* Begins the end; why goes to the log. Never frees. Of one that is ending: nothing. */
void session_end(struct session *session, const char *why, ...)
	__attribute__((format(printf, 2, 3)));
/* Frees it if it is over. */
void session_settle(struct session *session);
struct session *session_find(const struct server *server, uint64_t id); /* NULL: none */
/* Ends connections that have not said hello in time. */
void sessions_expire(struct server *server);

#endif
