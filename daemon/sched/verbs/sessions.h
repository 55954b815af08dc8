/*
 * sessions.h - sessions as the scheduler has them: how they come and go, whole and in parts.
 */
#ifndef COPPICED_SESSIONS_H
#define COPPICED_SESSIONS_H

#include "scheduler.h"

/* ---- services ---- */

struct session_add_call {
	uint64_t id, domain;
	int doorbell_fd; /* lent until the session has ended: an eventfd that the client rings */
	struct sched_session *session; /* answered */
};

struct session_end_call {
	bool keep_device; /* the device arenas stay, for a second one */
	/* answered: NULL, or something of it is left: arenas of the device, and if more others or
	 * sequences too */
	struct sched_session *session;
	bool more;
};

/* The room: a session_add_call. */
MUST_CHECK int sched_session_add(struct sched *s, struct sched_request *rq);
/* The room: a session_end_call. Waits of the session come back first, with -ECANCELED. */
MUST_CHECK int sched_session_end(struct sched *s, struct sched_request *rq);
/* No room. The watchdog's: that it comes back proves that the scheduler moves; the backend is asked
 * whether it has failed. */
MUST_CHECK int sched_probe(struct sched *s, struct sched_request *rq);

/* ---- parts, for the verbs ---- */

/* NULL: it has no such lane. */
struct sched_lane *session_lane(struct sched_session *session, uint32_t number);
/* Its entries end, its sequences close, some in a turn. False: there are more. */
MUST_CHECK bool session_remove_lane(struct sched *s, struct sched_lane *lane);
/* The step that the lane holds ends, wherever it is. */
void session_stop_step(struct sched *s, struct sched_lane *lane, struct outcome outcome);
void session_close_seq(struct sched *s, struct sched_seq *seq);
/* Some of it, where it is the host's. False: there is more. Nobody can name it any more. */
MUST_CHECK bool session_drop_arena(struct sched *s, struct sched_arena *arena);
/* Ends every session, for the scheduler's own end: open entries complete with -ESHUTDOWN. */
void sessions_end_all(struct sched *s);

#endif
