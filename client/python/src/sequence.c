/*
 * sequence.c - tokens, of which the daemon has KV: an object, and calls on it.
 *
 * A sequence is gone when it is closed, when its lane is, or when its connection is; the object
 * asks for these in turn, and never touches what went with one of them.
 */
#include "sequence.h"

#include "fault.h"

#include <errno.h>

PyObject *sequence_make(struct lane *lane, struct model *model, struct coppice_seq *seq,
			const struct coppice_match *match)
{
	struct sequence *self = object_new(types.sequence);

	if (!self) {
		coppice_seq_close(seq);
		return NULL;
	}
	Py_INCREF(lane);
	Py_INCREF(model);
	self->lane = lane;
	self->model = model;
	self->seq = seq;
	self->match = *match;
	return (PyObject *)self;
}

static struct coppice_seq *enter(struct sequence *self, struct coppice_lane *(*take)(struct lane *))
{
	if (self->closed)
		return fault_closed("sequence");
	if (!take(self->lane))
		return NULL;
	if (!self->closed)
		return self->seq;
	lane_leave(self->lane);
	return fault_closed("sequence");
}

struct coppice_seq *sequence_enter(struct sequence *self)
{
	return enter(self, lane_enter);
}

struct coppice_seq *sequence_try_enter(struct sequence *self)
{
	return enter(self, lane_try_enter);
}

void sequence_close(struct sequence *self)
{
	if (self->closed)
		return;
	self->closed = true;
	lane_drop_seq(self->lane, self->seq);
}

struct sequence *sequence_of(PyObject *object, const struct lane *lane)
{
	struct sequence *sequence = (struct sequence *)object;

	if (Py_TYPE(object) != types.sequence) {
		PyErr_SetString(PyExc_TypeError, "a coppice.Sequence is wanted");
		return NULL;
	}
	if (sequence->lane != lane)
		return fault_raise(-EINVAL, "the sequence is of another lane: an entry is of one");
	if (sequence->closed)
		return fault_closed("sequence");
	return sequence;
}
