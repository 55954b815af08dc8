/*
 * lane_type.c - what a lane does, as Python calls it.
 *
 * A lane is made by its connection. Tickets are numbers; what became of one is asked of the lane.
 */
#include "lane_type.h"

#include "blocking.h"
#include "cuda.h"
#include "decode.h"
#include "fault.h"
#include "number.h"
#include "opening.h"
#include "records.h"
#include "step.h"

#include <errno.h>
#include <stdlib.h>

/* ---- its life ------------------------------------------------------------------------------- */

static int make_lane(struct lane *self, bool pollable)
{
	struct coppice *c = connection_enter(self->connection);
	int r;

	if (!c)
		return -1;
	Py_BEGIN_ALLOW_THREADS;
	if (pollable)
		r = coppice_lane_new_pollable(c, &self->lane);
	else
		r = coppice_lane_new(c, &self->lane);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(c, r);
	connection_leave(self->connection);
	return r < 0 ? -1 : 0;
}

PyObject *lane_new(PyObject *connection, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"pollable", NULL};
	struct lane *self;
	int pollable = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:lane", names, &pollable))
		return NULL;
	self = object_new(types.lane);
	if (!self)
		return NULL;
	if (lane_init(self) < 0) {
		object_free(self);
		return NULL;
	}
	Py_INCREF(connection);
	self->connection = (struct connection *)connection;
	self->closed = true; /* until there is one */
	if (make_lane(self, pollable) < 0)
		Py_CLEAR(self);
	else
		self->closed = false;
	return (PyObject *)self;
}

static void lane_dealloc(struct lane *self)
{
	if (self->connection) {
		if (lane_close(self) < 0)
			PyErr_Clear();
		pthread_mutex_destroy(&self->lock);
		Py_DECREF(self->connection);
	}
	free(self->doomed);
	object_free(self);
}

static PyObject *close_method(struct lane *self, PyObject *unused)
{
	(void)unused;
	if (lane_close(self) < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* ---- tickets -------------------------------------------------------------------------------- */

static PyObject *lane_wait(struct lane *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"ticket", "timeout", NULL};
	PyObject *timeout = NULL;
	struct coppice_lane *entered;
	uint64_t ticket, timeout_ns;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|O:wait", names, NUMBER_64(&ticket),
					 &timeout) ||
	    duration_read(timeout, &timeout_ns) < 0)
		return NULL;
	entered = lane_enter(self);
	if (!entered)
		return NULL;
	return lane_leave_none(self, blocking_wait_ticket(entered, ticket, timeout_ns));
}

static PyObject *lane_poll(struct lane *self, PyObject *ticket)
{
	struct coppice_lane *entered;
	struct coppice_result result;
	uint64_t number;
	PyObject *none;
	int r;

	if (!number_read_64(ticket, &number))
		return NULL;
	entered = lane_try_enter(self);
	if (!entered)
		return lane_not_yet(Py_None);
	r = coppice_poll(entered, number, &result);
	none = lane_leave_none(self, r == -EAGAIN ? 0 : r);
	if (r < 0)
		return none;
	Py_DECREF(none);
	return record_result(&result);
}

static PyObject *lane_explain(struct lane *self, PyObject *ticket)
{
	struct coppice_lane *entered;
	PyObject *sentence;
	uint64_t number;

	if (!number_read_64(ticket, &number))
		return NULL;
	entered = lane_enter(self);
	if (!entered)
		return NULL;
	sentence = PyUnicode_FromString(coppice_explain_ticket(entered, number));
	lane_leave(self);
	return sentence;
}

static PyObject *lane_nop(struct lane *self, PyObject *unused)
{
	struct coppice_lane *entered = lane_enter(self);
	uint64_t ticket = 0;
	int r;

	(void)unused;
	if (!entered)
		return NULL;
	r = coppice_nop(entered, &ticket);
	return lane_leave_ticket(self, r, ticket);
}

static PyObject *lane_wait_on_stream(struct lane *self, PyObject *args)
{
	struct coppice_lane *entered;
	struct cuda_stream stream;
	uint64_t ticket;
	PyObject *object;

	if (!PyArg_ParseTuple(args, "O&O:wait_on_stream", NUMBER_64(&ticket), &object) ||
	    cuda_stream_read(object, &stream) < 0)
		return NULL;
	entered = lane_enter(self);
	if (!entered)
		return NULL;
	return lane_leave_none(self, coppice_wait_on_stream(entered, ticket, stream.handle));
}

/* ---- its descriptor ------------------------------------------------------------------------- */

/* It is the same for as long as the lane is open, so nobody is waited for. */
static PyObject *lane_fileno(struct lane *self, PyObject *unused)
{
	int fd;

	(void)unused;
	if (self->closed)
		return fault_closed("lane");
	if (!connection_enter(self->connection))
		return NULL;
	fd = coppice_lane_fd(self->lane);
	connection_leave(self->connection);
	return PyLong_FromLong(fd);
}

static PyObject *lane_arm(struct lane *self, PyObject *unused)
{
	struct coppice_lane *entered = lane_try_enter(self);

	(void)unused;
	if (!entered)
		return lane_not_yet(Py_False);
	coppice_lane_arm(entered);
	lane_leave(self);
	Py_RETURN_TRUE;
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyObject *lane_closed(struct lane *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->closed || self->connection->closed);
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)close_method, METH_NOARGS, NULL},
	{"fileno", (PyCFunction)lane_fileno, METH_NOARGS, NULL},
	{"arm", (PyCFunction)lane_arm, METH_NOARGS, NULL},
	{"open", KEYWORDS(opening_open), METH_VARARGS | METH_KEYWORDS, NULL},
	{"open_many", (PyCFunction)opening_open_many, METH_O, NULL},
	{"decode", KEYWORDS(decode_of_lane), METH_VARARGS | METH_KEYWORDS, NULL},
	{"step", KEYWORDS(step_submit), METH_FASTCALL | METH_KEYWORDS, NULL},
	{"nop", (PyCFunction)lane_nop, METH_NOARGS, NULL},
	{"wait", KEYWORDS(lane_wait), METH_VARARGS | METH_KEYWORDS, NULL},
	{"wait_on_stream", (PyCFunction)lane_wait_on_stream, METH_VARARGS, NULL},
	{"poll", (PyCFunction)lane_poll, METH_O, NULL},
	{"explain", (PyCFunction)lane_explain, METH_O, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyMemberDef members[] = {
	{"connection", T_OBJECT_EX, offsetof(struct lane, connection), READONLY, NULL},
	{NULL},
};

static PyGetSetDef getters[] = {
	{"closed", (getter)lane_closed, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, lane_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_members, members},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *lane_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Lane",
					       .basicsize = sizeof(struct lane),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
