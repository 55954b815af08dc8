/* step.h - one layer of some sequences, submitted. */
#ifndef COPPICE_PYTHON_STEP_H
#define COPPICE_PYTHON_STEP_H

#include "part.h"

#define STEP_FEW 16

/* Parts as the library takes them. */
struct step {
	struct coppice_step step;
	struct coppice_step_seq *seqs; /* few, or owned */
	struct coppice_step_seq few[STEP_FEW];
	int device; /* of the arrays; CUDA_ANY_DEVICE: in host memory */
};

/* layer, and a part or several, of the lane, which is entered; step_done follows. -1 and an
 * exception. */
MUST_CHECK int step_read(const struct lane *lane, PyObject *layer, PyObject *parts,
			 struct step *ret);
void step_done(struct step *step);
/* A stream's handle, which is of the device that the step's arrays are on. -1 and an exception. */
MUST_CHECK int step_stream(const struct step *step, PyObject *stream, void **ret);

/* A method of a lane: step(layer, parts, *, stream). */
PyObject *step_submit(struct lane *lane, PyObject *const *args, Py_ssize_t n, PyObject *names);

#endif
