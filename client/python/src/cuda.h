/*
 * cuda.h - of CUDA: on which device a pointer is, and streams as packages hand them over.
 *
 * libcuda.so.1 is looked for when a device arena is made, and not before.
 */
#ifndef COPPICE_PYTHON_CUDA_H
#define COPPICE_PYTHON_CUDA_H

#include "base.h"

#define CUDA_ANY_DEVICE (-1)

struct cuda_stream {
	void *handle;
	int device; /* CUDA_ANY_DEVICE: not told */
};

/* CUDA's number of the device of a pointer to its memory; 0 where it cannot be asked. */
int cuda_device_of(const void *pointer);
/* An integer, or an object with cuda_stream (torch), ptr (cupy) or __cuda_stream__. -1 and an
 * exception. */
MUST_CHECK int cuda_stream_read(PyObject *stream, struct cuda_stream *ret);

#endif
