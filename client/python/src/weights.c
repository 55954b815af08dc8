/*
 * weights.c - tensors that the daemon holds: opened by descriptors, waited for, looked up.
 *
 * A close while another thread waits for them is done by the last who leaves.
 */
#include "weights.h"

#include "arena.h"
#include "blocking.h"
#include "fault.h"
#include "number.h"
#include "records.h"

#include <errno.h>

/* ---- calls ---------------------------------------------------------------------------------- */

struct coppice_weights *weights_enter(struct weights *self)
{
	if (self->closed)
		return fault_closed("weights' handle");
	if (!connection_enter(self->connection))
		return NULL;
	self->n_calls++;
	return self->weights;
}

static void close_if_idle(struct weights *self, struct coppice *c)
{
	struct coppice_weights *weights = self->weights;

	if (!self->closed || self->n_calls > 0 || !weights)
		return;
	self->weights = NULL;
	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS;
	coppice_weights_close(weights);
	Py_END_ALLOW_THREADS;
}

void weights_leave(struct weights *self)
{
	self->n_calls--;
	close_if_idle(self, self->connection->c);
	connection_leave(self->connection);
}

static void close_now(struct weights *self)
{
	struct coppice *c = connection_hold(self->connection);

	self->closed = true;
	close_if_idle(self, c);
	connection_leave(self->connection);
}

static PyObject *weights_close(struct weights *self, PyObject *unused)
{
	(void)unused;
	close_now(self);
	Py_RETURN_NONE;
}

static void weights_dealloc(struct weights *self)
{
	if (self->connection) {
		close_now(self);
		Py_DECREF(self->connection);
	}
	object_free(self);
}

/* ---- opening -------------------------------------------------------------------------------- */

struct files {
	int fds[COPPICE_WEIGHT_FILES_MAX];
	uint32_t n;
};

static int read_files(PyObject *list, struct files *ret)
{
	Py_ssize_t n = PySequence_Size(list);

	if (n < 0)
		return -1;
	if (n == 0 || n > (Py_ssize_t)COPPICE_WEIGHT_FILES_MAX) {
		fault_format(-EINVAL, "weights are of 1 to %u files, not %zd",
			     COPPICE_WEIGHT_FILES_MAX, n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PySequence_GetItem(list, i);

		ret->fds[i] = item ? PyObject_AsFileDescriptor(item) : -1;
		Py_XDECREF(item);
		if (ret->fds[i] < 0)
			return -1;
	}
	ret->n = (uint32_t)n;
	return 0;
}

static int open_files(struct weights *self, const struct files *files)
{
	struct coppice *c = connection_enter(self->connection);
	int r;

	if (!c)
		return -1;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_weights_open(c, files->fds, files->n, &self->weights);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	connection_leave(self->connection);
	return r < 0 ? -1 : 0;
}

PyObject *weights_new(PyObject *connection, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"files", NULL};
	struct files files;
	PyObject *list;
	struct weights *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:weights", names, &list) ||
	    read_files(list, &files) < 0)
		return NULL;
	self = object_new(types.weights);
	if (!self)
		return NULL;
	Py_INCREF(connection);
	self->connection = (struct connection *)connection;
	if (open_files(self, &files) < 0)
		Py_CLEAR(self);
	return (PyObject *)self;
}

/* ---- waiting -------------------------------------------------------------------------------- */

struct look {
	struct coppice_weights *weights;
	struct coppice_progress progress;
};

static int look(void *context, uint64_t timeout_ns)
{
	struct look *l = context;

	return coppice_weights_wait(l->weights, timeout_ns, &l->progress);
}

/* patient: not to be there yet is a failure. */
static PyObject *look_for(struct weights *self, uint64_t timeout_ns, bool patient)
{
	struct look l = {.weights = weights_enter(self), .progress.size = sizeof(l.progress)};
	int r;

	if (!l.weights)
		return NULL;
	r = blocking_run(look, &l, timeout_ns);
	if (!patient && r == -ETIMEDOUT)
		r = 0;
	if (r < 0)
		fault_of(self->connection->c, r);
	weights_leave(self);
	return r ? NULL : record_progress(&l.progress);
}

static PyObject *weights_wait(struct weights *self, PyObject *args, PyObject *kwargs)
{
	uint64_t timeout_ns;

	if (duration_read_timeout(args, kwargs, "|O:wait", &timeout_ns) < 0)
		return NULL;
	return look_for(self, timeout_ns, true);
}

static PyObject *weights_progress(struct weights *self, PyObject *unused)
{
	(void)unused;
	return look_for(self, 0, false);
}

/* ---- mapping -------------------------------------------------------------------------------- */

struct mapping {
	struct coppice_weights *weights;
	struct coppice_arena *arena;
};

static int map_slice(void *context, uint64_t timeout_ns)
{
	struct mapping *m = context;

	return coppice_weights_map(m->weights, timeout_ns, &m->arena);
}

static PyObject *map_in_time(struct weights *self, uint64_t timeout_ns)
{
	struct mapping m = {.weights = weights_enter(self)};
	PyObject *arena = NULL;
	int r;

	if (!m.weights)
		return NULL;
	r = blocking_run(map_slice, &m, timeout_ns);
	if (r < 0)
		fault_of(self->connection->c, r);
	else if (r == 0)
		arena = arena_make(self->connection, m.arena);
	weights_leave(self);
	return arena;
}

static PyObject *weights_map(struct weights *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"timeout", NULL};
	PyObject *timeout = NULL;
	uint64_t timeout_ns;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:map", names, &timeout) ||
	    duration_read(timeout, &timeout_ns) < 0)
		return NULL;
	return map_in_time(self, timeout_ns);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static Py_ssize_t weights_length(struct weights *self)
{
	struct coppice_weights *weights = weights_enter(self);
	uint32_t n;

	if (!weights)
		return -1;
	n = coppice_weights_count(weights);
	weights_leave(self);
	return n;
}

static PyObject *weights_ready(struct weights *self, void *unused)
{
	Py_ssize_t n = weights_length(self);

	(void)unused;
	return n < 0 ? NULL : PyBool_FromLong(n > 0);
}

static PyObject *weights_tensor(struct weights *self, PyObject *args)
{
	struct coppice_weights *weights;
	struct coppice_tensor tensor;
	PyObject *record = NULL;
	uint64_t offset = 0;
	uint32_t number;
	int r;

	if (!PyArg_ParseTuple(args, "O&:tensor", NUMBER_32(&number)))
		return NULL;
	weights = weights_enter(self);
	if (!weights)
		return NULL;
	r = coppice_weights_tensor(weights, number, &tensor);
	if (r == 0)
		r = coppice_weights_offset(weights, number, &offset);
	if (r < 0)
		fault_of(self->connection->c, r);
	else
		record = record_tensor(number, &tensor, offset);
	weights_leave(self);
	return record;
}

static PyObject *weights_find(struct weights *self, PyObject *args)
{
	struct coppice_weights *weights;
	const char *name;
	uint32_t number;
	int r;

	if (!PyArg_ParseTuple(args, "s:find", &name))
		return NULL;
	weights = weights_enter(self);
	if (!weights)
		return NULL;
	r = coppice_weights_find(weights, name, &number);
	if (r < 0)
		fault_of(self->connection->c, r);
	weights_leave(self);
	return r < 0 ? NULL : PyLong_FromUnsignedLong(number);
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)weights_close, METH_NOARGS, NULL},
	{"wait", KEYWORDS(weights_wait), METH_VARARGS | METH_KEYWORDS, NULL},
	{"progress", (PyCFunction)weights_progress, METH_NOARGS, NULL},
	{"map", KEYWORDS(weights_map), METH_VARARGS | METH_KEYWORDS, NULL},
	{"tensor", (PyCFunction)weights_tensor, METH_VARARGS, NULL},
	{"find", (PyCFunction)weights_find, METH_VARARGS, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyGetSetDef getters[] = {
	{"ready", (getter)weights_ready, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, weights_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, getters},
	{Py_sq_length, weights_length},
	{0, NULL},
};

PyTypeObject *weights_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Weights",
					       .basicsize = sizeof(struct weights),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
