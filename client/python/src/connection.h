/*
 * connection.h - a session with the daemon, and who is in a call on it.
 *
 * Every call that lets go of the interpreter's lock enters and leaves. A close while others are in
 * calls marks the connection closed, and the last of them to leave ends it: so no call finds its
 * connection gone under it. All fields are the interpreter's lock's.
 */
#ifndef COPPICE_PYTHON_CONNECTION_H
#define COPPICE_PYTHON_CONNECTION_H

#include "base.h"
#include "heap.h"

struct connection {
	PyObject_HEAD;
	struct coppice *c; /* owned; NULL: it has ended */
	unsigned n_calls;
	bool closed;
	struct heap heap;
};

/* The library's connection; leave follows. NULL and an exception: it is closed. */
struct coppice *connection_enter(struct connection *self);
/* The same, for what gives things back: of a closed connection that has not ended too. NULL: it has
 * ended, and what there was with it; leave follows all the same. No exception. */
struct coppice *connection_hold(struct connection *self);
void connection_leave(struct connection *self);

/* The type. NULL and an exception. */
PyTypeObject *connection_type_new(PyObject *module);

#endif
