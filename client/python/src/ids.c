/*
 * ids.c - tokens, and other lists of numbers, from whatever Python has them in.
 *
 * Arrays of numpy's and torch's become lists by their own tolist, which is far faster than to ask
 * them for one element after another.
 */
#include "ids.h"

#include "fault.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

struct range {
	const char *what;
	bool minus_one; /* stands for UINT32_MAX */
};

/* A list or a tuple; a new reference. */
static PyObject *list_of(PyObject *object)
{
	PyObject *list;

	if (PyList_Check(object) || PyTuple_Check(object)) {
		Py_INCREF(object);
		return object;
	}
	if (!PyObject_HasAttrString(object, "tolist"))
		return PySequence_List(object);
	list = PyObject_CallMethod(object, "tolist", NULL);
	if (list && !PyList_Check(list)) {
		Py_CLEAR(list);
		PyErr_SetString(PyExc_TypeError, "tokens are of one dimension");
	}
	return list;
}

static int complain(const struct range *range, PyObject *item, Py_ssize_t i)
{
	if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError, "%s %zd is %R: an integer is wanted", range->what, i,
			     item);
		return -1;
	}
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
		return -1; /* an item's own __index__ raised it */
	PyErr_Clear();
	fault_format(-EINVAL, "%s %zd is %R: 0 to %u are taken", range->what, i, item,
		     UINT32_MAX - 1);
	return -1;
}

static int read_item(const struct range *range, PyObject *item, Py_ssize_t i, uint32_t *ret)
{
	long long value;

	value = PyLong_AsLongLong(item);
	if (value == -1 && PyErr_Occurred())
		return complain(range, item, i);
	if (value == -1 && range->minus_one)
		value = UINT32_MAX;
	else if (value < 0 || value >= UINT32_MAX)
		return complain(range, item, i);
	*ret = (uint32_t)value;
	return 0;
}

/* A new reference, as reading an item may run code that changes the list. */
static PyObject *item_of(PyObject *list, bool is_list, Py_ssize_t i)
{
	PyObject *item = is_list ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);

	Py_XINCREF(item);
	return item;
}

static int make_room(struct ids *ids, Py_ssize_t n)
{
	if (n >= UINT32_MAX) {
		fault_raise(-E2BIG, "a list of more than 4 billion numbers");
		return -1;
	}
	ids->n = (uint32_t)n;
	ids->items = ids->few;
	if (n > IDS_FEW)
		ids->items = malloc((size_t)n * sizeof(*ids->items));
	if (!ids->items)
		PyErr_NoMemory();
	return ids->items ? 0 : -1;
}

static int read_list(const struct range *range, PyObject *list, struct ids *ret)
{
	bool is_list = PyList_Check(list);
	Py_ssize_t n = is_list ? PyList_Size(list) : PyTuple_Size(list);

	if (make_room(ret, n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = item_of(list, is_list, i);
		int r = item ? read_item(range, item, i, &ret->items[i]) : -1;

		Py_XDECREF(item);
		if (r < 0) {
			ids_done(ret);
			return -1;
		}
	}
	return 0;
}

static int read_object(const struct range *range, PyObject *object, struct ids *ret)
{
	PyObject *list = list_of(object);
	int r;

	if (!list)
		return -1;
	r = read_list(range, list, ret);
	Py_DECREF(list);
	return r;
}

int ids_read(PyObject *list, const char *what, struct ids *ret)
{
	return read_object(&(struct range){what, false}, list, ret);
}

int ids_read_parents(PyObject *list, struct ids *ret)
{
	return read_object(&(struct range){"parent", true}, list, ret);
}

void ids_done(struct ids *ids)
{
	if (ids->items != ids->few)
		free(ids->items);
}

/* False: it is none that is plain. No code of its own is run, so the list stays as it is. */
static bool read_plain(PyObject *item, long long *ret)
{
	if (Py_TYPE(item) != &PyLong_Type)
		return false;
	*ret = PyLong_AsLongLong(item);
	if (*ret != -1 || !PyErr_Occurred())
		return true;
	PyErr_Clear();
	return false;
}

PyObject *ids_extremes(PyObject *module, PyObject *list)
{
	Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : 0;
	long long least = LLONG_MAX, most = LLONG_MIN, value;

	(void)module;
	for (Py_ssize_t i = 0; i < n; i++) {
		if (!read_plain(PyList_GetItem(list, i), &value))
			Py_RETURN_NONE;
		least = value < least ? value : least;
		most = value > most ? value : most;
	}
	if (n == 0)
		Py_RETURN_NONE;
	return Py_BuildValue("(LL)", least, most);
}
