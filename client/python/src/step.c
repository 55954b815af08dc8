/*
 * step.c - one layer of some sequences, submitted: the way that is taken once a layer and token.
 *
 * Nothing is allocated for a step of few parts, and nothing is asked of an array: a part has it.
 * What may run Python's code, a sequence's or a stream's, is read before the lane is entered.
 */
#include "step.h"

#include "fault.h"
#include "number.h"

#include <errno.h>
#include <stdlib.h>

static int add_part(const struct lane *lane, struct step *step, PyObject *object)
{
	struct part *part = (struct part *)object;
	struct coppice_step_seq *to = &step->seqs[step->step.n_seqs];

	if (Py_TYPE(object) != types.part) {
		PyErr_SetString(PyExc_TypeError, "a step is of a coppice.Part, or of several");
		return -1;
	}
	if (!sequence_of((PyObject *)part->seq, lane))
		return -1;
	*to = part->step;
	to->seq = part->seq->seq;
	if (part->device != CUDA_ANY_DEVICE)
		step->device = part->device;
	if (!to->o)
		step->step.append_only = true;
	step->step.n_seqs++;
	return 0;
}

static int make_room(struct step *step, Py_ssize_t n)
{
	step->seqs = step->few;
	if (n > STEP_FEW)
		step->seqs = malloc((size_t)n * sizeof(*step->seqs));
	if (!step->seqs)
		PyErr_NoMemory();
	return step->seqs ? 0 : -1;
}

static int add_parts(const struct lane *lane, struct step *step, PyObject *parts)
{
	bool is_list = PyList_Check(parts);
	Py_ssize_t n = is_list ? PyList_Size(parts) : PyTuple_Size(parts);

	if (make_room(step, n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *part = is_list ? PyList_GetItem(parts, i) : PyTuple_GetItem(parts, i);

		if (!part || add_part(lane, step, part) < 0)
			return -1;
	}
	return 0;
}

/* A new reference: a Part, or a list or tuple, which who gave it may have too. */
static PyObject *parts_of(PyObject *parts)
{
	if (Py_TYPE(parts) != types.part)
		return PySequence_Fast(parts, "a step is of a coppice.Part, or of several");
	Py_INCREF(parts);
	return parts;
}

int step_order_read(PyObject *layer, PyObject *parts, PyObject *stream, struct step_order *ret)
{
	if (!number_read_32(layer, &ret->layer))
		return -1;
	ret->on_stream = stream != NULL;
	if (ret->on_stream && cuda_stream_read(stream, &ret->stream) < 0)
		return -1;
	ret->parts = parts_of(parts);
	return ret->parts ? 0 : -1;
}

void step_order_done(struct step_order *order)
{
	Py_DECREF(order->parts);
}

static int check_stream(const struct step *step, const struct cuda_stream *stream)
{
	if (stream->device == CUDA_ANY_DEVICE || step->device == CUDA_ANY_DEVICE ||
	    stream->device == step->device)
		return 0;
	fault_format(-EINVAL,
		     "the stream is of GPU %d, the arrays are on GPU %d: take a stream of that",
		     stream->device, step->device);
	return -1;
}

int step_read(const struct lane *lane, const struct step_order *order, struct step *ret)
{
	int r;

	ret->step = (struct coppice_step){.size = sizeof(ret->step), .layer = order->layer};
	ret->device = CUDA_ANY_DEVICE;
	ret->seqs = ret->few;
	if (Py_TYPE(order->parts) == types.part)
		r = add_part(lane, ret, order->parts);
	else
		r = add_parts(lane, ret, order->parts);
	ret->step.seqs = ret->seqs;
	if (r == 0 && order->on_stream)
		r = check_stream(ret, &order->stream);
	if (r < 0)
		step_done(ret);
	return r;
}

void step_done(struct step *step)
{
	if (step->seqs != step->few)
		free(step->seqs);
}

/* 1: an exception is set. */
static int submit(const struct lane *lane, const struct step_order *order, uint64_t *ret_ticket)
{
	struct step step;
	int r;

	if (step_read(lane, order, &step) < 0)
		return 1;
	if (order->on_stream)
		r = coppice_step_on_stream(lane->lane, &step.step, order->stream.handle,
					   ret_ticket);
	else
		r = coppice_step(lane->lane, &step.step, ret_ticket);
	step_done(&step);
	return r;
}

/* The one keyword there is, by name. NULL and an exception: it is another. */
static PyObject *stream_of(PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;

	if (n == 2 && n_names == 0)
		return Py_None;
	if (n == 2 && n_names == 1 &&
	    PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "stream") == 0)
		return args[2];
	PyErr_SetString(PyExc_TypeError, "step(layer, parts, *, stream=None)");
	return NULL;
}

static PyObject *submit_order(struct lane *lane, const struct step_order *order)
{
	uint64_t ticket = 0;
	int r;

	if (!lane_enter(lane))
		return NULL;
	r = submit(lane, order, &ticket);
	if (r <= 0)
		return lane_leave_ticket(lane, r, ticket);
	lane_leave(lane);
	return NULL;
}

PyObject *step_submit(struct lane *lane, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	PyObject *stream = stream_of(args, n, names), *number;
	struct step_order order;

	if (!stream)
		return NULL;
	if (step_order_read(args[0], args[1], stream == Py_None ? NULL : stream, &order) < 0)
		return NULL;
	number = submit_order(lane, &order);
	step_order_done(&order);
	return number;
}
