/*
 * records.h - what calls return in several words: named tuples of the module's.
 *
 * Functions return a new reference, or NULL and an exception.
 */
#ifndef COPPICE_PYTHON_RECORDS_H
#define COPPICE_PYTHON_RECORDS_H

#include "base.h"

/* When the module is made. -1 and an exception. */
MUST_CHECK int records_init(PyObject *module);

PyObject *record_match(const struct coppice_match *match);
PyObject *record_state(uint32_t n_tokens, uint32_t n_live);
PyObject *record_result(const struct coppice_result *result);
PyObject *record_progress(const struct coppice_progress *progress);
PyObject *record_tensor(uint32_t number, const struct coppice_tensor *tensor, uint64_t offset);
PyObject *record_stats(const struct coppice_stats *stats);

/* Of a row: references to all are taken over, also where it fails. */
struct record_row {
	PyObject *ids, *logprobs, *lse, *score, *logits, *hidden;
};
PyObject *record_row(const struct record_row *row);

#endif
