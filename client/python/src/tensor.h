/*
 * tensor.h - dense arrays in memory that the daemon sees too.
 *
 * A tensor keeps its owner (an arena, or a decode), which keeps the memory mapped.
 */
#ifndef COPPICE_PYTHON_TENSOR_H
#define COPPICE_PYTHON_TENSOR_H

#include "base.h"
#include "dlpack.h"

struct tensor {
	PyObject_HEAD;
	PyObject *owner; /* a reference */
	struct dlpack_view view; /* dense */
	size_t n_bytes;
};

/* A new one: view's base, device, dtype, n_dims and shape are set. NULL and an exception. */
PyObject *tensor_make(PyObject *owner, const struct dlpack_view *view);
/* Bytes of a dense array of this shape and type. */
size_t tensor_bytes(const struct dlpack_view *view);

/* The type. NULL and an exception. */
PyTypeObject *tensor_type_new(PyObject *module);

#endif
