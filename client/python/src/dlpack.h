/*
 * dlpack.h - arrays of other packages', and ours for them. Theirs are asked for as DLPack had them
 * before version 1, which all of them give; ours are of version 1 where that is asked for, as only
 * these are known to be writable.
 *
 * https://dmlc.github.io/dlpack/latest/c_api.html
 */
#ifndef COPPICE_PYTHON_DLPACK_H
#define COPPICE_PYTHON_DLPACK_H

#include "base.h"
#include "dtype.h"

#define DLPACK_CPU 1
#define DLPACK_CUDA 2
#define DLPACK_CUDA_HOST 3
#define DLPACK_MANAGED 13
#define DLPACK_DIMS_MAX 4

/* Where an array lies, and how. Of DIMS_MAX dimensions at most. */
struct dlpack_view {
	uint8_t *base;
	int device_type, device;
	const struct dtype *dtype;
	int n_dims;
	int64_t shape[DLPACK_DIMS_MAX];
	int64_t strides[DLPACK_DIMS_MAX]; /* in elements */
};

/* What an object with __dlpack__ says; its memory is the object's. what: for sentences. -1 and an
 * exception. */
MUST_CHECK int dlpack_read(PyObject *array, const char *what, struct dlpack_view *ret);
/* A capsule over the view, dense, that keeps owner; versioned: of version 1. NULL and an
 * exception. */
PyObject *dlpack_capsule_new(PyObject *owner, const struct dlpack_view *view, bool versioned);

#endif
