/*
 * number.c - one integer of Python's, as unsigned words have it.
 *
 * Python's own integers go first: a step reads one, so nothing else is asked of them.
 */
#include "number.h"

#include "fault.h"

#include <errno.h>

/* An integer's; the one exception that reading it can have set is that it has too many bits. */
static bool refuse(PyObject *integer, uint64_t most)
{
	PyErr_Clear();
	fault_format(-EINVAL, "%R is given where 0 to %llu are taken", integer,
		     (unsigned long long)most);
	return false;
}

static bool read_integer(PyObject *integer, uint64_t most, uint64_t *ret)
{
	*ret = PyLong_AsUnsignedLongLong(integer);
	if (*ret > most || (*ret == UINT64_MAX && PyErr_Occurred()))
		return refuse(integer, most);
	return true;
}

/* A bool is an integer to Python, but nobody means one by it. */
static bool read_other(PyObject *object, uint64_t most, uint64_t *ret)
{
	PyObject *integer;
	bool good;

	if (PyBool_Check(object)) {
		PyErr_Format(PyExc_TypeError, "%R is given where an integer is wanted", object);
		return false;
	}
	integer = PyNumber_Index(object);
	if (!integer)
		return false;
	good = read_integer(integer, most, ret);
	Py_DECREF(integer);
	return good;
}

static inline bool read_number(PyObject *object, uint64_t most, uint64_t *ret)
{
	if (Py_TYPE(object) == &PyLong_Type)
		return read_integer(object, most, ret);
	return read_other(object, most, ret);
}

int number_read_32(PyObject *object, void *ret)
{
	uint64_t number;

	if (!read_number(object, UINT32_MAX, &number))
		return 0;
	*(uint32_t *)ret = (uint32_t)number;
	return 1;
}

int number_read_64(PyObject *object, void *ret)
{
	return read_number(object, UINT64_MAX, ret);
}
