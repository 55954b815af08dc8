/* part.h - one sequence's part of steps: arrays that were looked at once. */
#ifndef COPPICE_PYTHON_PART_H
#define COPPICE_PYTHON_PART_H

#include "sequence.h"

struct part {
	PyObject_HEAD;
	struct sequence *seq; /* a reference */
	PyObject *arrays[5]; /* references: q, k, v, o, lse; NULL: none */
	struct coppice_step_seq step; /* seq is set when it is submitted */
	int device; /* of its arrays; CUDA_ANY_DEVICE: in host memory */
};

/* The type. NULL and an exception. */
PyTypeObject *part_type_new(PyObject *module);

#endif
