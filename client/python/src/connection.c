/*
 * connection.c - a session with the daemon, and who is in a call on it.
 *
 * What a connection has (lanes, arenas, models, weights) is made where their types are; its methods
 * of their names call that.
 */
#include "connection.h"

#include "fault.h"
#include "number.h"
#include "records.h"

#include <errno.h>

/* ---- calls ---------------------------------------------------------------------------------- */

struct coppice *connection_enter(struct connection *self)
{
	if (self->closed)
		return fault_closed("connection");
	return connection_hold(self);
}

struct coppice *connection_hold(struct connection *self)
{
	self->n_calls++;
	return self->c;
}

static void end_if_idle(struct connection *self)
{
	struct coppice *c = self->c;

	if (!self->closed || self->n_calls > 0)
		return;
	self->c = NULL;
	coppice_close(c);
}

void connection_leave(struct connection *self)
{
	self->n_calls--;
	end_if_idle(self);
}

/* ---- its life ------------------------------------------------------------------------------- */

static int open_socket(const char *path, PyObject *timeout, struct coppice **ret)
{
	uint64_t timeout_ns = COPPICE_CONNECT_NS;
	int r;

	if (timeout && duration_read(timeout, &timeout_ns) < 0)
		return -1;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_connect_timeout(ret, path, timeout_ns);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of_connect(r);
	return r < 0 ? -1 : 0;
}

static PyObject *connection_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"path", "timeout", NULL};
	PyObject *timeout = NULL;
	const char *path = NULL;
	struct coppice *c;
	struct connection *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zO:Connection", names, &path, &timeout) ||
	    open_socket(path, timeout, &c) < 0)
		return NULL;
	self = object_new(type);
	if (self)
		self->c = c;
	else
		coppice_close(c);
	return (PyObject *)self;
}

static PyObject *connection_close(struct connection *self, PyObject *unused)
{
	(void)unused;
	if (!self->closed) {
		self->closed = true;
		end_if_idle(self);
	}
	Py_RETURN_NONE;
}

static void connection_dealloc(struct connection *self)
{
	coppice_close(self->c);
	heap_done(&self->heap);
	object_free(self);
}

/* ---- questions ------------------------------------------------------------------------------ */

static PyObject *connection_closed(struct connection *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->closed);
}

static PyObject *connection_fileno(struct connection *self, PyObject *unused)
{
	struct coppice *c = connection_enter(self);
	int fd;

	(void)unused;
	if (!c)
		return NULL;
	fd = coppice_fd(c);
	if (fd < 0)
		fault_of(c, fd);
	connection_leave(self);
	return fd < 0 ? NULL : PyLong_FromLong(fd);
}

static PyObject *connection_stats(struct connection *self, PyObject *unused)
{
	struct coppice_stats stats = {.size = sizeof(stats)};
	struct coppice *c = connection_enter(self);
	int r;

	(void)unused;
	if (!c)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_stats(c, &stats);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	connection_leave(self);
	return r < 0 ? NULL : record_stats(&stats);
}

static PyObject *connection_unpin(struct connection *self, PyObject *pin)
{
	struct coppice *c;
	uint64_t number;
	int r;

	if (!number_read_64(pin, &number))
		return NULL;
	c = connection_enter(self);
	if (!c)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_unpin(c, number);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	connection_leave(self);
	if (r < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- what it has ---------------------------------------------------------------------------- */

static PyObject *connection_lane(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return makers.lane(self, args, kwargs);
}

static PyObject *connection_arena(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return makers.arena(self, args, kwargs);
}

static PyObject *connection_weights(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return makers.weights(self, args, kwargs);
}

static PyObject *connection_model(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return makers.model(self, args, kwargs);
}

static PyObject *connection_program(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return makers.program(self, args, kwargs);
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)connection_close, METH_NOARGS, NULL},
	{"fileno", (PyCFunction)connection_fileno, METH_NOARGS, NULL},
	{"stats", (PyCFunction)connection_stats, METH_NOARGS, NULL},
	{"unpin", (PyCFunction)connection_unpin, METH_O, NULL},
	{"lane", KEYWORDS(connection_lane), METH_VARARGS | METH_KEYWORDS, NULL},
	{"arena", KEYWORDS(connection_arena), METH_VARARGS | METH_KEYWORDS, NULL},
	{"weights", KEYWORDS(connection_weights), METH_VARARGS | METH_KEYWORDS, NULL},
	{"model", KEYWORDS(connection_model), METH_VARARGS | METH_KEYWORDS, NULL},
	{"program", KEYWORDS(connection_program), METH_VARARGS | METH_KEYWORDS, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyGetSetDef getters[] = {
	{"closed", (getter)connection_closed, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_new, connection_new},
	{Py_tp_dealloc, connection_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *connection_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Connection",
					       .basicsize = sizeof(struct connection),
					       .flags = Py_TPFLAGS_DEFAULT,
					       .slots = slots});
}
