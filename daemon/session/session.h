/*
 * session.h - one connection and everything that its client has, and the table of all of them.
 *
 *      CONNECTED --hello--> JOINING --scheduler--> OPEN
 *           \                  |                    |
 *            +-----------------+------- end --------+--> ENDING --> freed
 *
 * How it comes and goes is life.h's. The loop's thread alone.
 */
#ifndef COPPICED_SESSION_H
#define COPPICED_SESSION_H

#include "daemon/config/config.h"
#include "daemon/loop/loop.h"
#include "errands.h"
#include "lent.h"
#include "proto/channel.h"
#include "shm.h"
#include "unread.h"

#include <sys/queue.h>
#include <sys/uio.h>

struct abi_board;
struct sched;
struct sched_session;
struct session_ending;
struct sessions;
struct unpack_arena;
struct weights;
struct weights_table;

/* A number of the session's. */
struct held_weights {
	struct weights *held; /* a reference; NULL: the number is free */
	bool is_open; /* in the client's process, as device memory */
};

enum session_state { SESSION_CONNECTED, SESSION_JOINING, SESSION_OPEN, SESSION_ENDING };

struct session {
	TAILQ_ENTRY(session) entry;
	struct sessions *home; /* borrowed */
	enum session_state state;
	bool joined; /* counts as a session, not as a mere connection */
	bool privileged; /* root or the daemon's own user */
	bool has_left; /* it has no memory of the device open, or is no more */
	uint64_t id;
	int fd; /* owned */
	/* owned eventfd: the client rings it, the scheduler listens; -1 before hello */
	int doorbell_fd;
	struct channel_peer peer; /* its pidfd owned */
	char name[64];
	uint64_t connected_ns;
	struct errands_user *user; /* owned, a reference */
	struct loop_op receive; /* packets, into packet */
	struct errand arrived; /* a packet is there, or what came instead */
	int arrived_bytes; /* or -errno */
	struct loop_op gone; /* the peer's pidfd */
	struct sched_session *sched; /* the scheduler's; NULL: none */
	struct session_ending *end; /* owned: the end cannot fail for want of memory */
	bool end_posted; /* and not back */
	uint32_t n_requests; /* posted, not over */
	uint32_t n_large; /* of all its requests: those whose verb is large */
	uint32_t n_carriers; /* of all its requests: those that carry descriptors */
	uint32_t n_shm_fds; /* descriptors of its lanes, and of memory that is not sealed */
	struct unread unread; /* of its answers */
	struct shm *arenas; /* owned, [config->max_arenas] */
	struct shm *lanes; /* owned, [config->max_lanes] */
	struct held_weights *weights; /* owned, [config->max_weights] */
	uint64_t arena_bytes; /* host memory, until it is free */
	uint32_t n_drops; /* of an ending one: arenas whose pages are being taken back */
	uint64_t device_bytes; /* device memory */
	uint64_t prompt_bytes; /* ids on their way to the scheduler */
	struct iovec iov;
	struct msghdr msg;
	uint8_t packet[CHANNEL_MAX_BYTES];
};

TAILQ_HEAD(session_list, session);

/* Everybody who is connected, and what they are served with; all pointers are borrowed. */
struct sessions {
	const struct config *config;
	struct loop *loop;
	struct sched *sched;
	const struct abi_board *board;
	int board_fd;
	const char *backend_name;
	struct shm_pages *pages;
	struct weights_table *weights; /* NULL: the backend holds none */
	struct unpack_arena *unpack; /* where the message being served lies */
	struct errands errands;
	struct lent lent; /* device arenas */
	/* The last one has gone, while the daemon stops. */
	void (*emptied)(struct sessions *sessions);

	struct session_list list;
	uint32_t n_connections;
	uint64_t last_id;
	uint64_t started_ns;
	uint64_t max_fds; /* descriptors that all of them may take */
	bool stopping;
	uint8_t packet[CHANNEL_MAX_BYTES]; /* the reply being packed */
};

struct session *session_find(const struct sessions *sessions, uint64_t id); /* NULL: none */

/* What there is of something that users share. */
struct sessions_use {
	uint32_t n_connections, n_sessions;
	uint64_t n_fds; /* those that are unread too */
	uint64_t n_unread_fds;
	uint64_t device_bytes; /* of device arenas, kept ones too */
	uint64_t kept_bytes; /* of these: freed, and still open in some process */
	uint64_t arena_bytes; /* of host arenas, until they are free */
};

/* Of all users, and of one. */
struct sessions_use sessions_use(struct sessions *sessions);
struct sessions_use sessions_domain_use(struct sessions *sessions, uid_t uid);
/* The limit that keeps this session from joining, as a sentence; NULL: it may. */
const char *session_refusal(struct session *session);
/* The limit that keeps this session from an answer with descriptors, as a sentence; NULL: none. */
const char *session_fds_refusal(struct session *session);
/* shm_seal of an arena or a lane of this session, whose descriptor counts no more then. */
MUST_CHECK int session_seal(struct session *session, struct shm *shm);
/* Are there as many connections as are taken, of all users or of this one? */
bool sessions_are_crowded(struct sessions *sessions, const struct session *newcomer);

#endif
