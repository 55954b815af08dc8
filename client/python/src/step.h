/* step.h - one layer of some sequences, submitted. */
#ifndef COPPICE_PYTHON_STEP_H
#define COPPICE_PYTHON_STEP_H

#include "cuda.h"
#include "part.h"

#define STEP_FEW 16

/* Parts as the library takes them. */
struct step {
	struct coppice_step step;
	struct coppice_step_seq *seqs; /* few, or owned */
	struct coppice_step_seq few[STEP_FEW];
	int device; /* of the arrays; CUDA_ANY_DEVICE: in host memory */
};

/* What is asked for, as Python's objects. */
struct step_order {
	uint32_t layer;
	PyObject *parts; /* a reference: a Part, or a list or tuple of such */
	bool on_stream;
	struct cuda_stream stream;
};

/* This may run code of others, so it comes before the lane is entered; step_order_done follows.
 * stream: NULL for none. -1 and an exception. */
MUST_CHECK int step_order_read(PyObject *layer, PyObject *parts, PyObject *stream,
			       struct step_order *ret);
void step_order_done(struct step_order *order);
/* Of the lane, which is entered; step_done follows. -1 and an exception. */
MUST_CHECK int step_read(const struct lane *lane, const struct step_order *order, struct step *ret);
void step_done(struct step *step);

/* A method of a lane: step(layer, parts, *, stream). */
PyObject *step_submit(struct lane *lane, PyObject *const *args, Py_ssize_t n, PyObject *names);

#endif
