/*
 * fault.c - codes and sentences of libcoppice become exceptions.
 *
 * Sentences are those of the calling thread, so they are taken at once, with the interpreter's lock
 * held by the thread that failed.
 */
#include "fault.h"

#include <errno.h>
#include <stdarg.h>

static PyObject *error_of, *error_of_connect; /* owned: functions */

int fault_init(void)
{
	PyObject *module = PyImport_ImportModule("coppice._errors");

	if (!module)
		return -1;
	error_of = PyObject_GetAttrString(module, "error_of");
	error_of_connect = PyObject_GetAttrString(module, "error_of_connect");
	Py_DECREF(module);
	return error_of && error_of_connect ? 0 : -1;
}

static void *raise_by(PyObject *maker, int code, PyObject *sentence)
{
	PyObject *error;

	if (!sentence)
		return NULL;
	error = PyObject_CallFunction(maker, "iO", -code, sentence);
	Py_DECREF(sentence);
	if (!error)
		return NULL;
	PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_DECREF(error);
	return NULL;
}

void *fault_raise(int code, const char *sentence)
{
	return raise_by(error_of, code, PyUnicode_FromString(sentence));
}

void *fault_format(int code, const char *format, ...)
{
	PyObject *sentence;
	va_list args;

	va_start(args, format);
	sentence = PyUnicode_FromFormatV(format, args);
	va_end(args);
	return raise_by(error_of, code, sentence);
}

void *fault_of(const struct coppice *c, int code)
{
	return fault_raise(code, coppice_explain(c));
}

void *fault_of_connect(int code)
{
	return raise_by(error_of_connect, code, PyUnicode_FromString(coppice_explain(NULL)));
}

void *fault_closed(const char *what)
{
	return fault_format(-EBADF, "the %s is closed: make another", what);
}
