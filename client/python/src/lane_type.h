/* lane_type.h - what a lane does, as Python calls it. */
#ifndef COPPICE_PYTHON_LANE_TYPE_H
#define COPPICE_PYTHON_LANE_TYPE_H

#include "base.h"

/* A connection's method: lane(*, pollable). */
PyObject *lane_new(PyObject *connection, PyObject *args, PyObject *kwargs);
/* The type. NULL and an exception. */
PyTypeObject *lane_type_new(PyObject *module);

#endif
