/* decode.h - tokens on their way through a program. */
#ifndef COPPICE_PYTHON_DECODE_H
#define COPPICE_PYTHON_DECODE_H

#include "sequence.h"

/* Methods: of a lane, decode(parts, *, top, score, logits, hidden); of a sequence, decode(tokens,
 * n_rows, *, the same). */
PyObject *decode_of_lane(struct lane *lane, PyObject *args, PyObject *kwargs);
PyObject *decode_of_sequence(struct sequence *seq, PyObject *args, PyObject *kwargs);

/* The type. NULL and an exception. */
PyTypeObject *decode_type_new(PyObject *module);

#endif
