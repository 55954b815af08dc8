/*
 * capture.c - steps in a CUDA graph that is launched again and again.
 *
 * The object keeps the parts that were captured, and with them their arrays, as every launch uses
 * them.
 */
#include "capture.h"

#include "cuda.h"
#include "fault.h"
#include "step.h"

#include <errno.h>
#include <stdlib.h>

struct capture {
	PyObject_HEAD;
	struct lane *lane; /* a reference */
	struct coppice_capture *capture; /* the lane's; NULL: closed */
	PyObject *parts; /* a reference: a list of what was captured, Parts and tuples of such */
	uint32_t n_seqs; /* of a step */
};

/* The lane is entered. NULL and an exception. */
static struct coppice_capture *capture_enter(struct capture *self)
{
	if (!self->capture)
		return fault_closed("capture");
	if (!lane_enter(self->lane))
		return NULL;
	if (self->capture)
		return self->capture;
	lane_leave(self->lane); /* it was closed meanwhile */
	return fault_closed("capture");
}

static int make_capture(struct capture *self, PyObject *stream)
{
	struct coppice_lane *entered;
	struct cuda_stream read;
	int r;

	if (cuda_stream_read(stream, &read) < 0)
		return -1;
	entered = lane_enter(self->lane);
	if (!entered)
		return -1;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_capture_new(entered, read.handle, &self->capture);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(self->lane->connection->c, r);
	lane_leave(self->lane);
	return r;
}

static PyObject *capture_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"lane", "stream", NULL};
	PyObject *lane, *stream;
	struct capture *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Capture", names, types.lane, &lane,
					 &stream))
		return NULL;
	self = object_new(type);
	if (!self)
		return NULL;
	Py_INCREF(lane);
	self->lane = (struct lane *)lane;
	self->parts = PyList_New(0);
	if (!self->parts || make_capture(self, stream) < 0)
		Py_CLEAR(self);
	return (PyObject *)self;
}

/* Not what was captured: a thread may be in a call that uses it. */
static void release(struct capture *self)
{
	struct coppice_capture *capture = self->capture;

	self->capture = NULL;
	if (capture)
		lane_drop_capture(self->lane, capture);
}

static PyObject *capture_close(struct capture *self, PyObject *unused)
{
	(void)unused;
	release(self);
	Py_RETURN_NONE;
}

static void capture_dealloc(struct capture *self)
{
	release(self);
	Py_XDECREF(self->parts);
	Py_XDECREF(self->lane);
	object_free(self);
}

/* 1: an exception is set. */
static int add_step(struct capture *self, struct coppice_capture *entered,
		    const struct step_order *order)
{
	struct step step;
	int r = 1;

	if (step_read(self->lane, order, &step) < 0)
		return 1;
	if (PyList_Append(self->parts, order->parts) == 0)
		r = coppice_capture_step(entered, &step.step, order->stream.handle);
	if (r == 0)
		self->n_seqs = step.step.n_seqs;
	step_done(&step);
	return r;
}

static PyObject *add_order(struct capture *self, const struct step_order *order)
{
	struct coppice_capture *entered = capture_enter(self);

	if (!entered)
		return NULL;
	return lane_leave_none(self->lane, add_step(self, entered, order));
}

/* A new reference to what nobody changes, as a caller may his list. */
static PyObject *keepable(PyObject *parts)
{
	if (Py_TYPE(parts) != types.part)
		return PySequence_Tuple(parts);
	Py_INCREF(parts);
	return parts;
}

static PyObject *capture_step(struct capture *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"layer", "parts", "stream", NULL};
	PyObject *layer, *parts, *stream;
	struct step_order order;
	PyObject *none = NULL;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:step", names, &layer, &parts, &stream))
		return NULL;
	parts = keepable(parts);
	if (!parts)
		return NULL;
	if (step_order_read(layer, parts, stream, &order) == 0) {
		none = add_order(self, &order);
		step_order_done(&order);
	}
	Py_DECREF(parts);
	return none;
}

static PyObject *capture_wait(struct capture *self, PyObject *stream)
{
	struct coppice_capture *entered;
	struct cuda_stream read;

	if (cuda_stream_read(stream, &read) < 0)
		return NULL;
	entered = capture_enter(self);
	if (!entered)
		return NULL;
	return lane_leave_none(self->lane, coppice_capture_wait(entered, read.handle));
}

static int read_seqs(struct capture *self, PyObject *list, struct coppice_seq **ret)
{
	Py_ssize_t n = PyList_Size(list);

	if (n != self->n_seqs) {
		fault_format(-EINVAL, "%zd sequences are given, the captured steps have %u", n,
			     self->n_seqs);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		struct sequence *seq = sequence_of(PyList_GetItem(list, i), self->lane);

		if (!seq)
			return -1;
		ret[i] = seq->seq;
	}
	return 0;
}

static int submit(struct capture *self, struct coppice_capture *entered, PyObject *list,
		  uint64_t *ret_ticket)
{
	struct coppice_seq **seqs;
	int r = 1;

	if (!list)
		return coppice_capture_submit(entered, NULL, ret_ticket);
	seqs = calloc(self->n_seqs + 1, sizeof(*seqs));
	if (!seqs)
		PyErr_NoMemory();
	else if (read_seqs(self, list, seqs) == 0)
		r = coppice_capture_submit(entered, seqs, ret_ticket);
	free(seqs);
	return r;
}

static PyObject *submit_list(struct capture *self, PyObject *list)
{
	struct coppice_capture *entered = capture_enter(self);
	uint64_t ticket = 0;
	int r;

	if (!entered)
		return NULL;
	r = submit(self, entered, list, &ticket);
	if (r <= 0)
		return lane_leave_ticket(self->lane, r, ticket);
	lane_leave(self->lane);
	return NULL;
}

static PyObject *capture_submit(struct capture *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"seqs", NULL};
	PyObject *seqs = Py_None, *list = NULL, *ticket;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:submit", names, &seqs))
		return NULL;
	if (seqs != Py_None) {
		list = PySequence_List(seqs);
		if (!list)
			return NULL;
	}
	ticket = submit_list(self, list);
	Py_XDECREF(list);
	return ticket;
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)capture_close, METH_NOARGS, NULL},
	{"step", KEYWORDS(capture_step), METH_VARARGS | METH_KEYWORDS, NULL},
	{"wait", (PyCFunction)capture_wait, METH_O, NULL},
	{"submit", KEYWORDS(capture_submit), METH_VARARGS | METH_KEYWORDS, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_new, capture_new},
	{Py_tp_dealloc, capture_dealloc},
	{Py_tp_methods, methods},
	{0, NULL},
};

PyTypeObject *capture_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Capture",
					       .basicsize = sizeof(struct capture),
					       .flags = Py_TPFLAGS_DEFAULT,
					       .slots = slots});
}
