/*
 * lane.h - an ordered timeline of entries, and whose turn it is on it.
 *
 * The library wants one thread at a time on a lane and its sequences: each call takes the lane's
 * lock, which a call that blocks keeps while it is without the interpreter's. A sequence or capture
 * that is dropped while somebody has the lane is closed when he leaves it. Memory that an entry may
 * write to although nobody waits for it any more is the lane's until the entry has ended.
 */
#ifndef COPPICE_PYTHON_LANE_H
#define COPPICE_PYTHON_LANE_H

#include "connection.h"

#include <pthread.h>
#include <sys/types.h>

/* Of an entry in flight that nobody waits for. */
struct lane_orphan {
	struct lane_orphan *next;
	uint64_t ticket;
	struct heap_piece piece;
};

/* One of them: to be closed by who leaves. */
struct lane_doomed {
	struct coppice_seq *seq;
	struct coppice_capture *capture;
};

struct lane {
	PyObject_HEAD;
	struct connection *connection; /* a reference */
	struct coppice_lane *lane; /* the connection's */
	bool closed;
	pthread_mutex_t lock; /* of the library's lane */
	pid_t pid; /* whose threads take it */
	struct lane_doomed *doomed; /* owned array */
	unsigned n_doomed, doomed_room;
	struct lane_orphan *orphans; /* owned */
};

/* Its lock. -1 and an exception. */
MUST_CHECK int lane_init(struct lane *self);
/* The library's lane, the connection entered; leave follows. No code of others is run until then:
 * arguments have been read. NULL and an exception: closed, or this thread is in the lane. */
struct coppice_lane *lane_enter(struct lane *self);
/* The same without waiting: NULL and no exception where a thread is in the lane. */
struct coppice_lane *lane_try_enter(struct lane *self);
/* What a call returns that could not enter: the value, or NULL where there is an exception. */
PyObject *lane_not_yet(PyObject *value);
void lane_leave(struct lane *self);
/* Leaves after a call that submits: a new reference to its ticket, or NULL and an exception. */
PyObject *lane_leave_ticket(struct lane *self, int code, uint64_t ticket);
/* Leaves after a call that returns nothing else. */
PyObject *lane_leave_none(struct lane *self, int code);

/* Closes the library's sequence, now or soon. For who is not in the lane. */
void lane_drop_seq(struct lane *self, struct coppice_seq *seq);
/* The same of a capture. Never waits, nor is an exception set or cleared. */
void lane_drop_capture(struct lane *self, struct coppice_capture *capture);
/* Takes the piece over until the ticket has ended. */
void lane_adopt(struct lane *self, uint64_t ticket, struct heap_piece *piece);
/* Gives back pieces whose tickets have ended. The lane is entered. */
void lane_sweep(struct lane *self);
/* Frees the lane, with its sequences. -errno and an exception: this thread is in it. */
MUST_CHECK int lane_close(struct lane *self);

#endif
