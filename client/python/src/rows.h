/* rows.h - what comes of tokens, as the daemon writes it and as Python has it. */
#ifndef COPPICE_PYTHON_ROWS_H
#define COPPICE_PYTHON_ROWS_H

#include "base.h"
#include "model.h"

/* What is wanted of an entry's rows. */
struct rows {
	uint32_t n;
	uint32_t want; /* enum coppice_want */
	uint32_t n_top;
	uint32_t n_vocab, hidden; /* of the model */
};

/* From row to row. */
uint32_t rows_stride(const struct rows *rows);
/* A list of coppice.Row; tensors of logits keep owner. NULL and an exception. */
PyObject *rows_list(const struct rows *rows, uint8_t *base, PyObject *owner);

#endif
