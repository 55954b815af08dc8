/* docs.h - docstrings, which are written in the stubs and nowhere else. */
#ifndef COPPICE_PYTHON_DOCS_H
#define COPPICE_PYTHON_DOCS_H

#include "api.h"

/* Of "Class.name", "Class" or "function"; "" is the module's. NULL: the stubs have none. */
const char *docs_find(const char *name);
/* Of something of a class's. */
const char *docs_find_in(const char *kind, const char *name);
/* Gives them to functions of the module's. */
void docs_fill_functions(PyMethodDef *functions);
/* The same for a type, and what its tables have; which keep them. kind: without the module. */
void docs_fill_type(const char *kind, PyType_Slot *slots);

#endif
