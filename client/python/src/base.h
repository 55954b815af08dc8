/*
 * base.h - what every file of the extension begins with: Python's limited API, the types by name,
 * and helpers that know no object of ours.
 */
#ifndef COPPICE_PYTHON_BASE_H
#define COPPICE_PYTHON_BASE_H

#include "api.h"
#include "client/coppice_program.h"

#define MUST_CHECK __attribute__((warn_unused_result))

/* Made when the module is; borrowed. */
struct types {
	PyTypeObject *connection, *weights, *model, *arena, *tensor, *lane, *sequence, *part;
	PyTypeObject *decode, *capture;
};
extern struct types types;

/* What a connection's methods of these names call, with the connection: set when the module is. */
struct makers {
	PyCFunctionWithKeywords lane, arena, weights, model, program;
};
extern struct makers makers;

/* A type as the module's init makes it, with docstrings; NULL and an exception. */
PyTypeObject *type_new(PyObject *module, PyType_Spec *spec);

/* An object of a type of ours, zeroed behind its head. NULL and an exception. */
void *object_new(PyTypeObject *type);
/* Gives the memory back, and the type's reference. */
void object_free(void *self);

/* Seconds, or None for COPPICE_FOREVER. -1 and an exception. */
MUST_CHECK int duration_read(PyObject *seconds, uint64_t *ret_ns);
/* The same of a call's one argument, `timeout`, which may be left out: "|O:" and its name. */
MUST_CHECK int duration_read_timeout(PyObject *args, PyObject *kwargs, const char *format,
				     uint64_t *ret_ns);

/* A type's docstring is in the stubs: type_new puts it here. */
#define TYPE_DOC \
	{ \
		Py_tp_doc, NULL \
	}

/* `__enter__`, and `__exit__` that calls close(). */
PyObject *context_enter(PyObject *self, PyObject *unused);
PyObject *context_exit(PyObject *self, PyObject *args);
#define CONTEXT_ENTER \
	{ \
		"__enter__", context_enter, METH_NOARGS, NULL \
	}
#define CONTEXT_EXIT \
	{ \
		"__exit__", context_exit, METH_VARARGS, NULL \
	}

/* A function of (args, kwargs) where a table of methods wants one of (args). */
#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

#endif
