/* program.h - models whose layers the daemon computes, by a config.json. */
#ifndef COPPICE_PYTHON_PROGRAM_H
#define COPPICE_PYTHON_PROGRAM_H

#include "base.h"

/* The function that makes one: (connection, weights, config, *, max_positions, dtype, page_tokens).
 * A new reference; NULL and an exception. */
PyObject *program_function_new(void);

#endif
