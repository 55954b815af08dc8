/*
 * cuda.c - of CUDA: on which device a pointer is, and streams as packages hand them over.
 *
 * Nothing of CUDA is linked; what is not there is not asked.
 */
#include "cuda.h"

#include "fault.h"
#include "number.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>

#define DEVICE_ORDINAL 9 /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */

typedef int (*pointer_attribute)(void *ret, int attribute, unsigned long long pointer);

int cuda_device_of(const void *pointer)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	pointer_attribute ask;
	int device = 0;

	if (!driver)
		return 0;
	ask = (pointer_attribute)dlsym(driver, "cuPointerGetAttribute");
	if (!ask || ask(&device, DEVICE_ORDINAL, (uintptr_t)pointer) != 0)
		device = 0;
	dlclose(driver);
	return device;
}

/* A new reference; NULL without an exception where there is no such attribute. */
static PyObject *attribute(PyObject *object, const char *name)
{
	if (!PyObject_HasAttrString(object, name))
		return NULL;
	return PyObject_GetAttrString(object, name);
}

/* (version, handle) */
static PyObject *by_protocol(PyObject *stream)
{
	PyObject *pair = NULL, *handle = NULL;

	if (PyObject_HasAttrString(stream, "__cuda_stream__"))
		pair = PyObject_CallMethod(stream, "__cuda_stream__", NULL);
	if (pair)
		handle = PySequence_GetItem(pair, 1);
	Py_XDECREF(pair);
	return handle;
}

static PyObject *handle_of(PyObject *stream)
{
	PyObject *handle;

	if (PyLong_Check(stream)) {
		Py_INCREF(stream);
		return stream;
	}
	handle = attribute(stream, "cuda_stream");
	if (!handle && !PyErr_Occurred())
		handle = attribute(stream, "ptr");
	if (!handle && !PyErr_Occurred())
		handle = by_protocol(stream);
	if (!handle && !PyErr_Occurred())
		PyErr_SetString(PyExc_TypeError, "a stream is an integer (cudaStream_t), or a "
						 "torch.cuda.Stream, or one of cupy's");
	return handle;
}

/* An exception is for the caller to look for. */
static int device_of_stream(PyObject *stream)
{
	PyObject *index = attribute(stream, "device_index");
	long device = index ? PyLong_AsLong(index) : CUDA_ANY_DEVICE;

	Py_XDECREF(index);
	if (device < INT_MIN || device > INT_MAX)
		fault_format(-EINVAL, "the stream's device_index is %ld: up to %d is taken", device,
			     INT_MAX);
	return (int)device;
}

/* An integer says no more than the handle; to ask it for attributes takes longer than all else. */
int cuda_stream_read(PyObject *stream, struct cuda_stream *ret)
{
	bool is_handle = PyLong_Check(stream);
	PyObject *handle = handle_of(stream);
	uint64_t address;
	bool good;

	if (!handle)
		return -1;
	good = number_read_64(handle, &address);
	Py_DECREF(handle);
	if (!good)
		return -1;
	ret->handle = (void *)(uintptr_t)address;
	ret->device = is_handle ? CUDA_ANY_DEVICE : device_of_stream(stream);
	return PyErr_Occurred() ? -1 : 0;
}
