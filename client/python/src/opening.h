/* opening.h - prompts become sequences, and what others compute of them is waited for. */
#ifndef COPPICE_PYTHON_OPENING_H
#define COPPICE_PYTHON_OPENING_H

#include "sequence.h"

/* Methods of a lane: open(model, tokens, *, salt), open_many([(model, tokens[, salt])...]). */
PyObject *opening_open(struct lane *lane, PyObject *args, PyObject *kwargs);
PyObject *opening_open_many(struct lane *lane, PyObject *prompts);
/* Methods of a sequence: wait(timeout), ask(timeout), answer(). */
PyObject *opening_wait(struct sequence *seq, PyObject *args, PyObject *kwargs);
PyObject *opening_ask(struct sequence *seq, PyObject *args, PyObject *kwargs);
PyObject *opening_answer(struct sequence *seq, PyObject *unused);

#endif
