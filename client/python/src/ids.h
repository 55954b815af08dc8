/* ids.h - tokens, and other lists of numbers, from whatever Python has them in. */
#ifndef COPPICE_PYTHON_IDS_H
#define COPPICE_PYTHON_IDS_H

#include "base.h"

#define IDS_FEW 8

struct ids {
	uint32_t *items; /* few, or owned */
	uint32_t n;
	uint32_t few[IDS_FEW]; /* of a decode step: nothing is allocated */
};

/* what: one of them, for sentences. ids_done follows. -1 and an exception. */
MUST_CHECK int ids_read(PyObject *list, const char *what, struct ids *ret);
/* The same with -1 for UINT32_MAX. */
MUST_CHECK int ids_read_parents(PyObject *list, struct ids *ret);
void ids_done(struct ids *ids);
/* The function of the module: (least, most) of a list, or None where it is empty or has anything
 * but plain integers of 64 bits. */
PyObject *ids_extremes(PyObject *module, PyObject *list);

#endif
