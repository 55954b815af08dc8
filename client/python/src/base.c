/*
 * base.c - types, durations and context managers.
 *
 * Types are made once, when the module is, and live as long as the process: the module has no
 * second interpreter.
 */
#include "base.h"

#include "docs.h"

#include <math.h>

struct types types;
struct makers makers;

PyTypeObject *type_new(PyObject *module, PyType_Spec *spec)
{
	PyObject *type;

	docs_fill_type(strrchr(spec->name, '.') + 1, spec->slots);
	type = PyType_FromSpec(spec);
	if (!type)
		return NULL;
	if (PyModule_AddType(module, (PyTypeObject *)type) < 0)
		return NULL;
	return (PyTypeObject *)type;
}

void *object_new(PyTypeObject *type)
{
	return PyType_GenericAlloc(type, 0);
}

void object_free(void *self)
{
	PyTypeObject *type = Py_TYPE((PyObject *)self);

	PyObject_Free(self);
	Py_DECREF(type);
}

int duration_read(PyObject *seconds, uint64_t *ret_ns)
{
	double value;

	if (seconds == NULL || seconds == Py_None) {
		*ret_ns = COPPICE_FOREVER;
		return 0;
	}
	value = PyFloat_AsDouble(seconds);
	if (value == -1 && PyErr_Occurred())
		return -1;
	if (isnan(value) || value < 0) {
		PyErr_SetString(PyExc_ValueError, "a duration is 0 or more seconds, or None");
		return -1;
	}
	*ret_ns = value < 1e10 ? (uint64_t)(value * 1e9) : COPPICE_FOREVER;
	return 0;
}

int duration_read_timeout(PyObject *args, PyObject *kwargs, const char *format, uint64_t *ret_ns)
{
	static char *names[] = {"timeout", NULL};
	PyObject *timeout = NULL;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, &timeout))
		return -1;
	return duration_read(timeout, ret_ns);
}

PyObject *context_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	Py_INCREF(self);
	return self;
}

PyObject *context_exit(PyObject *self, PyObject *args)
{
	(void)args;
	return PyObject_CallMethod(self, "close", NULL);
}
