/* api.h - Python's limited API. */
#ifndef COPPICE_PYTHON_API_H
#define COPPICE_PYTHON_API_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#endif
