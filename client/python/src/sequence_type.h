/* sequence_type.h - what a sequence does, as Python calls it. */
#ifndef COPPICE_PYTHON_SEQUENCE_TYPE_H
#define COPPICE_PYTHON_SEQUENCE_TYPE_H

#include "base.h"

/* The type. NULL and an exception. */
PyTypeObject *sequence_type_new(PyObject *module);

#endif
