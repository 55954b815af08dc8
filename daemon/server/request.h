/*
 * request.h - what the loop has posted to the scheduler and waits to have back.
 */
#ifndef COPPICED_REQUEST_H
#define COPPICED_REQUEST_H

#include "daemon/sched/sched.h"

struct request;
struct server;
struct session;

/* At most so many of a session at a time; more are refused with -EBUSY. */
#define REQUEST_MAX_PER_SESSION 64u

/* Served: sched.code and sched.out hold. Must not free the session. */
typedef void (*request_done)(struct request *request);

struct request {
	struct sched_request sched; /* its cookie is this request, its id the client's */
	struct server *server; /* borrowed */
	/* borrowed: a session outlives its requests; NULL: the daemon's own */
	struct session *session;
	request_done done;
	void *lent; /* owned: tokens, or room for a long answer */
	uint32_t number; /* of the arena or lane that it is about */
	int fds[2]; /* owned: they go with the reply */
	uint32_t n_fds;
	bool on_heap;
	bool again; /* done wants it posted once more */
	uint64_t n_pages; /* evict: gone in earlier turns */
};

/* For a session; zeroed but for cookie, id, session. NULL after a reply that says why not: no
 * memory, or too many are under way. */
struct request *request_begin(struct session *s, uint64_t id, enum sched_verb verb,
			      request_done done);
/* The same with room in lent, zeroed. */
struct request *request_begin_lent(struct session *s, uint64_t id, enum sched_verb verb,
				   request_done done, size_t bytes);
/* Of one that was not posted, or is over. NULL is fine. */
void request_free(struct request *request);
/* One that is embedded in its owner. session may be NULL. */
void request_init(struct request *request, struct server *server, struct session *session,
		  enum sched_verb verb, request_done done);
/* Hands it to the scheduler; done comes later, from server.c. Does not block. */
void request_post(struct request *request);
/* It came back: done, then freed; a session that only waited for it ends. */
void request_over(struct request *request);

#endif
