/* arena.h - memory that the daemon sees too, and tensors cut from it. */
#ifndef COPPICE_PYTHON_ARENA_H
#define COPPICE_PYTHON_ARENA_H

#include "connection.h"

/* An arena of the library's, whose reference is taken over. NULL and an exception. */
PyObject *arena_make(struct connection *connection, struct coppice_arena *arena);

/* A connection's method: arena(n_bytes, *, memory, device). */
PyObject *arena_new(PyObject *connection, PyObject *args, PyObject *kwargs);
/* The type. NULL and an exception. */
PyTypeObject *arena_type_new(PyObject *module);

#endif
