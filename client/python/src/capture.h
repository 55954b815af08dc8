/* capture.h - steps in a CUDA graph that is launched again and again. */
#ifndef COPPICE_PYTHON_CAPTURE_H
#define COPPICE_PYTHON_CAPTURE_H

#include "base.h"

/* The type. NULL and an exception. */
PyTypeObject *capture_type_new(PyObject *module);

#endif
