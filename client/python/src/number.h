/*
 * number.h - one integer of Python's, as unsigned words have it.
 *
 * Those of the format "I" and "K" are cut to their width, and never refused: so arguments are
 * read by "O&" and one of these.
 */
#ifndef COPPICE_PYTHON_NUMBER_H
#define COPPICE_PYTHON_NUMBER_H

#include "base.h"

/* Into a uint32_t, and a uint64_t. 1; or, as "O&" wants it, 0 and an exception: TypeError where it
 * is no integer, or a bool, and Invalid where it does not fit. An integer of another type (numpy's)
 * runs code of its own. */
MUST_CHECK int number_read_32(PyObject *object, void *ret);
MUST_CHECK int number_read_64(PyObject *object, void *ret);

/* What belongs to an "O&": whoever gives a word of the other width is warned. */
#define NUMBER_32(ret) number_read_32, (1 ? (ret) : (uint32_t *)NULL)
#define NUMBER_64(ret) number_read_64, (1 ? (ret) : (uint64_t *)NULL)

#endif
