/* program.h - models whose layers the daemon computes, by a config.json. */
#ifndef COPPICE_PYTHON_PROGRAM_H
#define COPPICE_PYTHON_PROGRAM_H

#include "base.h"

/* A connection's method: program(weights, config, *, max_positions, dtype, page_tokens). */
PyObject *program_new(PyObject *connection, PyObject *args, PyObject *kwargs);

#endif
