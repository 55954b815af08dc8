/*
 * decode.c - tokens on their way through a program.
 *
 * The object owns a piece of the connection's heap, where the daemon writes rows. Tensors of logits
 * keep the object. Who drops it while the entry is in flight abandons the piece.
 */
#include "decode.h"

#include "blocking.h"
#include "decode_order.h"
#include "fault.h"

#include <errno.h>

struct decode {
	PyObject_HEAD;
	struct lane *lane; /* a reference */
	unsigned long long ticket; /* 0: nothing was submitted */
	struct rows rows;
	struct heap_piece piece; /* owned */
	bool ended; /* the daemon writes no more */
	bool good; /* and the rows are there */
};

/* ---- submitting ----------------------------------------------------------------------------- */

static int set_wants(struct rows *rows, int top, const int *wants)
{
	if (top < 0 || top > (int)COPPICE_TOP_MAX) {
		fault_format(-EINVAL, "top is %d: 0 to %u", top, COPPICE_TOP_MAX);
		return -1;
	}
	rows->n_top = (uint32_t)top;
	rows->want = (top ? COPPICE_WANT_TOP : 0u) | (wants[0] ? COPPICE_WANT_SCORE : 0u) |
		     (wants[1] ? COPPICE_WANT_LOGITS : 0u) | (wants[2] ? COPPICE_WANT_HIDDEN : 0u);
	return 0;
}

static int set_seqs(struct decode_order *order, const struct lane *lane)
{
	for (uint32_t i = 0; i < order->n; i++) {
		if (!sequence_of((PyObject *)order->objects[i], lane))
			return -1;
		order->seqs[i].seq = order->objects[i]->seq;
	}
	return 0;
}

/* No row: nothing is wanted of any token. */
static int call_decode(struct decode *self, struct coppice_lane *entered,
		       const struct decode_order *order)
{
	bool any = order->rows.n > 0;
	struct coppice_decode decode = {
		.size = sizeof(decode),
		.seqs = order->seqs,
		.n_seqs = order->n,
		.want = any ? order->rows.want : 0,
		.n_top = any ? order->rows.n_top : 0,
		.out_stride = rows_stride(&order->rows),
		.out = self->piece.base,
	};
	uint64_t ticket = 0;
	int r = coppice_decode(entered, &decode, &ticket);

	self->ticket = ticket;
	self->ended = r < 0;
	return r;
}

/* The lane is entered. */
static int submit(struct decode *self, struct coppice_lane *entered, struct decode_order *order)
{
	struct connection *connection = self->lane->connection;
	size_t bytes = (size_t)rows_stride(&order->rows) * (order->rows.n + 1);
	int r;

	lane_sweep(self->lane);
	r = heap_take(&connection->heap, connection->c, bytes, &self->piece);
	if (r == -ENOMEM) {
		PyErr_NoMemory(); /* the library need not have been asked */
		return r;
	}
	if (r == 0 && set_seqs(order, self->lane) < 0)
		return -1;
	if (r == 0)
		r = call_decode(self, entered, order);
	if (r < 0)
		fault_of(connection->c, r);
	return r;
}

static PyObject *decode_make(struct lane *lane, struct decode_order *order)
{
	struct coppice_lane *entered;
	struct decode *self;
	int r;

	if (order->n == 0)
		return fault_raise(-EINVAL, "a decode is of one sequence or more");
	order->rows.n_vocab = order->objects[0]->model->shape.n_vocab;
	order->rows.hidden = order->objects[0]->model->shape.hidden;
	self = object_new(types.decode);
	if (!self)
		return NULL;
	Py_INCREF(lane);
	self->lane = lane;
	self->ended = true;
	self->rows = order->rows;
	entered = lane_enter(lane);
	r = entered ? submit(self, entered, order) : -1;
	if (entered)
		lane_leave(lane);
	if (r < 0)
		Py_CLEAR(self);
	return (PyObject *)self;
}

static int read_parts(struct decode_order *order, PyObject *parts)
{
	Py_ssize_t n = PyList_Size(parts);

	if (decode_order_init(order, n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		if (decode_order_add_tuple(order, PyList_GetItem(parts, i)) < 0)
			return -1;
	}
	return 0;
}

PyObject *decode_of_lane(struct lane *lane, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"parts", "top", "score", "logits", "hidden", NULL};
	struct decode_order order = {0};
	PyObject *parts, *decode = NULL;
	int top = 1, wants[3] = {0};

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$ippp:decode", names, &parts, &top,
					 &wants[0], &wants[1], &wants[2]) ||
	    set_wants(&order.rows, top, wants) < 0)
		return NULL;
	parts = PySequence_List(parts);
	if (!parts)
		return NULL;
	if (read_parts(&order, parts) == 0)
		decode = decode_make(lane, &order);
	decode_order_done(&order);
	Py_DECREF(parts);
	return decode;
}

PyObject *decode_of_sequence(struct sequence *seq, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"tokens", "n_rows", "top",     "score",
				"logits", "hidden", "parents", NULL};
	struct decode_part part = {.n_rows = 1, .parents = Py_None};
	struct decode_order order = {0};
	PyObject *decode = NULL;
	int top = 1, wants[3] = {0};

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|l$ipppO:decode", names, &part.tokens,
					 &part.n_rows, &top, &wants[0], &wants[1], &wants[2],
					 &part.parents) ||
	    set_wants(&order.rows, top, wants) < 0)
		return NULL;
	if (decode_order_init(&order, 1) == 0 &&
	    decode_order_add(&order, (PyObject *)seq, &part) == 0)
		decode = decode_make(seq->lane, &order);
	decode_order_done(&order);
	return decode;
}

/* ---- its end -------------------------------------------------------------------------------- */

/* A ticket that is not known any more has ended. */
static void note_end(struct decode *self, int code)
{
	if (code != -ETIMEDOUT && code != -EAGAIN && code != BLOCKING_RAISED)
		self->ended = true;
	if (code == 0)
		self->good = true;
}

static int poll(struct decode *self, struct coppice_lane *lane)
{
	struct coppice_result result = {0};
	int r = coppice_poll(lane, self->ticket, &result);

	return r < 0 ? r : result.status;
}

/* -1 and an exception: it failed, or is not over yet. */
static int await(struct decode *self, uint64_t timeout_ns)
{
	struct coppice_lane *entered = lane_enter(self->lane);
	PyObject *none;
	int r;

	if (!entered)
		return -1;
	r = blocking_wait_ticket(entered, self->ticket, timeout_ns);
	note_end(self, r);
	none = lane_leave_none(self->lane, r);
	Py_XDECREF(none);
	return none ? 0 : -1;
}

static PyObject *decode_wait(struct decode *self, PyObject *args, PyObject *kwargs)
{
	uint64_t timeout_ns;

	if (duration_read_timeout(args, kwargs, "|O:wait", &timeout_ns) < 0)
		return NULL;
	if (!self->good && await(self, timeout_ns) < 0)
		return NULL;
	return rows_list(&self->rows, self->piece.base, (PyObject *)self);
}

static PyObject *decode_done(struct decode *self, PyObject *unused)
{
	struct coppice_lane *entered;

	(void)unused;
	if (self->ended)
		Py_RETURN_TRUE;
	entered = lane_try_enter(self->lane);
	if (!entered)
		return lane_not_yet(Py_False);
	note_end(self, poll(self, entered));
	lane_leave(self->lane);
	return PyBool_FromLong(self->ended);
}

/* Another thread may wait for it: its lock is not taken. The interpreter's is held, and a lane that
 * is about to go says so under that. */
static PyObject *decode_cancel(struct decode *self, PyObject *unused)
{
	struct lane *lane = self->lane;
	struct coppice *c = connection_hold(lane->connection);
	int r = 0;

	(void)unused;
	if (c && !self->ended && !lane->closed)
		r = coppice_decode_cancel(lane->lane, self->ticket);
	if (r < 0)
		fault_of(c, r);
	connection_leave(lane->connection);
	if (r < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Nobody waits here: an entry that goes on keeps its memory by the lane. */
static void drop_piece(struct decode *self)
{
	struct lane *lane = self->lane;
	struct coppice *c = connection_hold(lane->connection);

	if (self->ended || !c)
		heap_give(&lane->connection->heap, c, &self->piece, false);
	else if (lane->closed)
		heap_give(&lane->connection->heap, c, &self->piece, true);
	else
		lane_adopt(lane, self->ticket, &self->piece);
	connection_leave(lane->connection);
}

static void decode_dealloc(struct decode *self)
{
	if (self->lane) {
		drop_piece(self);
		Py_DECREF(self->lane);
	}
	object_free(self);
}

static PyObject *decode_failed(struct decode *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->ended && !self->good);
}

static PyMethodDef methods[] = {
	{"wait", KEYWORDS(decode_wait), METH_VARARGS | METH_KEYWORDS, NULL},
	{"done", (PyCFunction)decode_done, METH_NOARGS, NULL},
	{"cancel", (PyCFunction)decode_cancel, METH_NOARGS, NULL},
	{NULL},
};

static PyMemberDef members[] = {
	{"lane", T_OBJECT_EX, offsetof(struct decode, lane), READONLY, NULL},
	{"ticket", T_ULONGLONG, offsetof(struct decode, ticket), READONLY, NULL},
	{NULL},
};

static PyGetSetDef getters[] = {
	{"failed", (getter)decode_failed, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, decode_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_members, members},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *decode_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Decode",
					       .basicsize = sizeof(struct decode),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
