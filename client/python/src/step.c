/*
 * step.c - one layer of some sequences, submitted: the way that is taken once a layer and token.
 *
 * Nothing is allocated for a step of few parts, and nothing is asked of an array: a part has it.
 */
#include "step.h"

#include "cuda.h"
#include "fault.h"

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
	Py_ssize_t n = PySequence_Size(parts);

	if (n < 0 || make_room(step, n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *part = PySequence_GetItem(parts, i);
		int r = part ? add_part(lane, step, part) : -1;

		Py_XDECREF(part); /* who gave the list has it */
		if (r < 0)
			return -1;
	}
	return 0;
}

int step_read(const struct lane *lane, PyObject *layer, PyObject *parts, struct step *ret)
{
	unsigned long number = PyLong_AsUnsignedLong(layer);
	int r;

	if (PyErr_Occurred())
		return -1;
	ret->step = (struct coppice_step){.size = sizeof(ret->step), .layer = (uint32_t)number};
	ret->device = CUDA_ANY_DEVICE;
	ret->seqs = ret->few;
	if (Py_TYPE(parts) == types.part)
		r = add_part(lane, ret, parts);
	else
		r = add_parts(lane, ret, parts);
	ret->step.seqs = ret->seqs;
	if (r < 0)
		step_done(ret);
	return r;
}

void step_done(struct step *step)
{
	if (step->seqs != step->few)
		free(step->seqs);
}

int step_stream(const struct step *step, PyObject *stream, void **ret)
{
	struct cuda_stream read;

	if (cuda_stream_read(stream, &read) < 0)
		return -1;
	if (read.device != CUDA_ANY_DEVICE && step->device != CUDA_ANY_DEVICE &&
	    read.device != step->device) {
		fault_format(-EINVAL,
			     "the stream is of GPU %d, the arrays are on GPU %d: take a stream of "
			     "that",
			     read.device, step->device);
		return -1;
	}
	*ret = read.handle;
	return 0;
}

static int submit(struct coppice_lane *entered, const struct step *step, PyObject *stream,
		  uint64_t *ret_ticket)
{
	void *handle;

	if (stream == Py_None)
		return coppice_step(entered, &step->step, ret_ticket);
	if (step_stream(step, stream, &handle) < 0)
		return 1;
	return coppice_step_on_stream(entered, &step->step, handle, ret_ticket);
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

PyObject *step_submit(struct lane *lane, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
	PyObject *stream = stream_of(args, n, names);
	struct coppice_lane *entered;
	uint64_t ticket = 0;
	struct step step;
	int r = 1;

	if (!stream)
		return NULL;
	entered = lane_enter(lane);
	if (!entered)
		return NULL;
	if (step_read(lane, args[0], args[1], &step) == 0) {
		r = submit(entered, &step, stream, &ticket);
		step_done(&step);
	}
	if (r <= 0)
		return lane_leave_ticket(lane, r, ticket);
	lane_leave(lane);
	return NULL;
}
