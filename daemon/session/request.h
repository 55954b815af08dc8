/*
 * request.h - what the loop has posted to the scheduler and waits to have back.
 *
 *      verb->begin           loop        looks at the message, fills the request, posts it
 *      the scheduler         its thread  serves it between batches
 *      verb->answer          loop        makes the reply
 */
#ifndef COPPICED_REQUEST_H
#define COPPICED_REQUEST_H

#include "daemon/sched/sched.h"
#include "errands.h"

struct request;
struct session;
struct sessions;

/* At most so many of a session at a time; more are refused with -EBUSY. */
#define REQUEST_MAX_PER_SESSION 64u
/* The same of those that have tens of KiB of the heap until they are answered: pages of lists,
 * programs. */
#define REQUEST_MAX_LARGE 4u

/* Something that is asked of the scheduler: by a client, or by the daemon itself. */
struct verb {
	/* The loop's thread, a client's alone: answers at once, or begins a request. message: the
	 * verb's protobuf-c struct. */
	void (*begin)(struct session *session, uint64_t id, const void *message);
	/* The scheduler's thread. */
	sched_service serve;
	/* Drivers take their time over memory, a millisecond or more: one such request between
	 * two batches. */
	bool slow;
	bool large; /* REQUEST_MAX_LARGE */
	/* The same: is it one that may be served while a pass is under way? NULL: none is. */
	sched_beside beside;
	/* The loop's thread: served, sched.code and the room's answer hold. Must not free the
	 * session. */
	void (*answer)(struct request *request);
};

struct request {
	/* its cookie is this request, its id the client's, its room the verb's own struct */
	struct sched_request sched;
	const struct verb *verb; /* static */
	struct sessions *home; /* borrowed */
	/* borrowed: a session outlives its requests; NULL: the daemon's own */
	struct session *session;
	struct errand back; /* of a session's: its answer is there */
	int fds[2]; /* owned: they go with the reply; -1: is to come */
	uint32_t n_fds;
	bool on_heap;
	bool again; /* answer wants it posted once more */
	bool held; /* answer waits for the loop's own: request_over once more */
};

/* One that is embedded in its owner, or owned by it. session may be NULL. */
void request_init(struct request *request, const struct verb *verb, struct sessions *home,
		  struct session *session);
/* Of one that was not posted, or is over, with all it owns. NULL is fine. */
void request_free(struct request *request);
/* fd (-1: it is to come) goes with the reply, and is the request's until then; it counts for its
 * session. */
void request_carry(struct request *request, int fd);
/* Hands it to the scheduler; it comes back to request_back (begin.h). Does not block. */
void request_post(struct request *request);

#endif
