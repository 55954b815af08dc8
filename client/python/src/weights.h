/* weights.h - tensors that the daemon holds. */
#ifndef COPPICE_PYTHON_WEIGHTS_H
#define COPPICE_PYTHON_WEIGHTS_H

#include "connection.h"

struct weights {
	PyObject_HEAD;
	struct connection *connection; /* a reference */
	struct coppice_weights *weights; /* the connection's; NULL: closed */
	unsigned n_calls; /* a close while there are any is theirs to do */
	bool closed;
};

/* The library's weights, and their connection entered; leave follows. NULL and an exception. */
struct coppice_weights *weights_enter(struct weights *self);
void weights_leave(struct weights *self);

/* A connection's method: weights(files). */
PyObject *weights_new(PyObject *connection, PyObject *args, PyObject *kwargs);
/* The type. NULL and an exception. */
PyTypeObject *weights_type_new(PyObject *module);

#endif
