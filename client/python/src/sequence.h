/* sequence.h - tokens, of which the daemon has KV: an object, and calls on it. */
#ifndef COPPICE_PYTHON_SEQUENCE_H
#define COPPICE_PYTHON_SEQUENCE_H

#include "lane.h"
#include "model.h"

struct sequence {
	PyObject_HEAD;
	struct lane *lane; /* a reference */
	struct model *model; /* a reference */
	struct coppice_seq *seq; /* the lane's */
	bool closed;
	struct coppice_match match; /* as last heard of */
};

/* Around a sequence of the library's, which is the object's from now on; closed where making it
 * fails. The lane is entered. NULL and an exception. */
PyObject *sequence_make(struct lane *lane, struct model *model, struct coppice_seq *seq,
			const struct coppice_match *match);
/* Its lane is entered; lane_leave follows. NULL and an exception: closed. */
struct coppice_seq *sequence_enter(struct sequence *self);
/* The same without waiting: NULL and no exception where a thread is in the lane. */
struct coppice_seq *sequence_try_enter(struct sequence *self);
void sequence_close(struct sequence *self);

/* A sequence of the lane's, open, for calls of several; the lane is entered. what: for sentences.
 * NULL and an exception. */
struct sequence *sequence_of(PyObject *object, const struct lane *lane);

#endif
