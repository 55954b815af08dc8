/*
 * lane.c - an ordered timeline of entries, and whose turn it is on it.
 *
 * The order of locks: the interpreter's is let go before a lane's is waited for. So a thread that
 * waits for a lane holds nobody up. In the middle of a call Python may run code of others in the
 * same thread, such as a signal's handler: what this asks of the lane is refused, as it would wait
 * for itself.
 */
#include "lane.h"

#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int lane_init(struct lane *self)
{
	pthread_mutexattr_t kind;
	int r;

	self->pid = getpid();
	r = pthread_mutexattr_init(&kind);
	if (r == 0) {
		pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
		r = pthread_mutex_init(&self->lock, &kind);
		pthread_mutexattr_destroy(&kind);
	}
	if (r)
		PyErr_NoMemory();
	return r ? -1 : 0;
}

/* -EBUSY: a thread has it. -EOWNERDEAD: a thread had it that is not in this process. */
static int try_lock(struct lane *self)
{
	if (pthread_mutex_trylock(&self->lock) == 0)
		return 0;
	return getpid() == self->pid ? -EBUSY : -EOWNERDEAD;
}

/* -EDEADLK: this thread has it. -EOWNERDEAD as above. */
static int lock(struct lane *self)
{
	int r = try_lock(self);

	if (r != -EBUSY)
		return r;
	Py_BEGIN_ALLOW_THREADS;
	r = -pthread_mutex_lock(&self->lock);
	Py_END_ALLOW_THREADS;
	return r;
}

static void *fault_of_lock(int code)
{
	if (code == -EOWNERDEAD)
		return fault_raise(code, "the lane is of the process that this one was forked "
					 "from: connect anew");
	return fault_raise(-EBUSY, "this thread is in a call on the lane: a handler of signals "
				   "may ask nothing of it meanwhile");
}

static struct coppice_lane *enter(struct lane *self, int (*take)(struct lane *))
{
	int r;

	if (self->closed)
		return fault_closed("lane");
	if (!connection_enter(self->connection))
		return NULL;
	r = take(self);
	if (r < 0) {
		connection_leave(self->connection);
		return r == -EBUSY ? NULL : fault_of_lock(r);
	}
	if (!self->closed)
		return self->lane;
	lane_leave(self);
	return fault_closed("lane");
}

struct coppice_lane *lane_enter(struct lane *self)
{
	return enter(self, lock);
}

struct coppice_lane *lane_try_enter(struct lane *self)
{
	return enter(self, try_lock);
}

PyObject *lane_not_yet(PyObject *value)
{
	if (PyErr_Occurred())
		return NULL;
	Py_INCREF(value);
	return value;
}

static void close_seq(struct coppice_seq *seq)
{
	Py_BEGIN_ALLOW_THREADS;
	coppice_seq_close(seq);
	Py_END_ALLOW_THREADS;
}

static void end(struct lane_doomed doomed)
{
	if (doomed.seq)
		close_seq(doomed.seq);
	coppice_capture_free(doomed.capture);
}

/* Others may add to them meanwhile. */
static void close_doomed(struct lane *self)
{
	while (self->n_doomed > 0)
		end(self->doomed[--self->n_doomed]);
}

void lane_leave(struct lane *self)
{
	if (!self->closed)
		close_doomed(self);
	pthread_mutex_unlock(&self->lock);
	connection_leave(self->connection);
}

PyObject *lane_leave_ticket(struct lane *self, int code, uint64_t ticket)
{
	if (code < 0)
		fault_of(self->connection->c, code);
	lane_leave(self);
	return code < 0 ? NULL : PyLong_FromUnsignedLongLong(ticket);
}

PyObject *lane_leave_none(struct lane *self, int code)
{
	if (code < 0)
		fault_of(self->connection->c, code);
	lane_leave(self);
	if (code)
		return NULL;
	Py_RETURN_NONE;
}

/* Where there is no memory for it, it goes with the lane. */
static void doom(struct lane *self, struct lane_doomed doomed)
{
	unsigned room = self->doomed_room ? 2 * self->doomed_room : 8;
	struct lane_doomed *grown;

	if (self->n_doomed == self->doomed_room) {
		grown = realloc(self->doomed, room * sizeof(*grown));
		if (!grown)
			return;
		self->doomed = grown;
		self->doomed_room = room;
	}
	self->doomed[self->n_doomed++] = doomed;
}

/* With its lane it has gone. */
static void drop(struct lane *self, struct lane_doomed doomed)
{
	struct coppice *c = connection_hold(self->connection);

	if (!c || self->closed) {
		connection_leave(self->connection);
		return;
	}
	if (pthread_mutex_trylock(&self->lock) == 0) {
		end(doomed);
		lane_leave(self);
		return;
	}
	doom(self, doomed);
	connection_leave(self->connection);
}

void lane_drop_seq(struct lane *self, struct coppice_seq *seq)
{
	drop(self, (struct lane_doomed){.seq = seq});
}

void lane_drop_capture(struct lane *self, struct coppice_capture *capture)
{
	drop(self, (struct lane_doomed){.capture = capture});
}

/* Without memory for it the piece is never used again. */
void lane_adopt(struct lane *self, uint64_t ticket, struct heap_piece *piece)
{
	struct lane_orphan *orphan = malloc(sizeof(*orphan));

	if (!orphan)
		return;
	*orphan = (struct lane_orphan){self->orphans, ticket, *piece};
	self->orphans = orphan;
	piece->chunk = NULL;
}

/* After it a chunk of an entry that may still be written to goes to the daemon, which ends that. */
static void bury(struct lane *self, struct lane_orphan *orphan, bool abandoned)
{
	struct connection *connection = self->connection;

	heap_give(&connection->heap, connection->c, &orphan->piece, abandoned);
	free(orphan);
}

void lane_sweep(struct lane *self)
{
	struct lane_orphan **at = &self->orphans, *ended = NULL, *orphan;
	struct coppice_result result;

	while ((orphan = *at)) {
		if (coppice_poll(self->lane, orphan->ticket, &result) == -EAGAIN) {
			at = &orphan->next;
			continue;
		}
		*at = orphan->next;
		orphan->next = ended;
		ended = orphan;
	}
	while ((orphan = ended)) {
		ended = orphan->next;
		bury(self, orphan, false);
	}
}

static void free_lane(struct lane *self)
{
	Py_BEGIN_ALLOW_THREADS;
	coppice_lane_free(self->lane);
	Py_END_ALLOW_THREADS;
}

static void bury_all(struct lane *self)
{
	struct lane_orphan *orphan;

	while ((orphan = self->orphans)) {
		self->orphans = orphan->next;
		bury(self, orphan, true);
	}
}

static void close_locked(struct lane *self, const struct coppice *c)
{
	bool open = c && !self->closed;

	self->closed = true;
	if (open)
		free_lane(self);
	bury_all(self);
	pthread_mutex_unlock(&self->lock);
}

int lane_close(struct lane *self)
{
	struct coppice *c = connection_hold(self->connection);
	int r = lock(self);

	if (r == 0)
		close_locked(self, c);
	else
		fault_of_lock(r);
	connection_leave(self->connection);
	return r;
}
