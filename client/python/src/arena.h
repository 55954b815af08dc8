/* arena.h - memory that the daemon sees too, and tensors cut from it. */
#ifndef COPPICE_PYTHON_ARENA_H
#define COPPICE_PYTHON_ARENA_H

#include "base.h"

/* The type. NULL and an exception. */
PyTypeObject *arena_type_new(PyObject *module);

#endif
