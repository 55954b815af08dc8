/*
 * request.h - what the loop asks of the scheduler, and what the scheduler answers.
 *
 * The scheduler knows no verbs: a request brings the function that serves it, and has a room in
 * which lies whatever that takes and gives, a struct of the verb's own.
 */
#ifndef COPPICED_SCHED_REQUEST_H
#define COPPICED_SCHED_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

struct sched;
struct sched_request;
struct sched_session;

/* Serves a request, on the scheduler's thread between two batches, or beside a pass. 0, -errno
 * after filling message and field, or SCHED_LATER: it is kept, and goes back when it is answered;
 * or SCHED_AGAIN: it has more to do than a turn has time for. */
typedef int (*sched_service)(struct sched *s, struct sched_request *rq);
/* A pass is under way: may the request be served now? It must not touch what the pass has. */
typedef bool (*sched_beside)(const struct sched *s, const struct sched_request *rq);
#define SCHED_LATER 1
#define SCHED_AGAIN 2

struct request_queue {
	struct sched_request *first, **last;
};

/* Zeroed by the poster, who owns it before sched_post and again after sched_reap. */
struct sched_request {
	struct sched_request *next; /* the scheduler's */
	sched_service serve;
	bool slow; /* it may take milliseconds: nothing else is served in its round */
	sched_beside beside; /* NULL: never */
	/* lent by the poster: what the service takes and gives, of the type that it says; NULL: it
	 * takes and gives nothing */
	void *room;
	struct sched_session *session; /* NULL: of one that joins, and the daemon's own */
	void *cookie; /* the poster's */
	uint64_t id; /* the poster's */
	/* root or the daemon's own user: all domains; else the session's domain alone */
	bool privileged;
	int code; /* 0 or -errno */
	char message[240]; /* a sentence where code is not 0 */
	const char *field; /* static; NULL: none */
};

#endif
