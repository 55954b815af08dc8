/* decode_order.h - what is asked of a decode, read from Python's arguments. */
#ifndef COPPICE_PYTHON_DECODE_ORDER_H
#define COPPICE_PYTHON_DECODE_ORDER_H

#include "ids.h"
#include "rows.h"
#include "sequence.h"

/* Parts of a decode, and what is wanted of their rows. */
struct decode_order {
	uint32_t n;
	struct coppice_decode_seq *seqs; /* owned */
	struct ids *ids, *parents; /* owned, of n; parents of drafts alone */
	struct sequence **objects; /* owned array of references */
	struct rows rows;
};

/* Room for n parts. decode_order_done follows, also where it fails. -1 and an exception. */
MUST_CHECK int decode_order_init(struct decode_order *order, Py_ssize_t n);
/* What of a part is not its sequence. */
struct decode_part {
	PyObject *tokens;
	long n_rows; /* of its last tokens are wanted */
	PyObject *parents; /* None: no draft */
};

/* -1 and an exception. */
MUST_CHECK int decode_order_add(struct decode_order *order, PyObject *seq,
				const struct decode_part *part);
/* (sequence, tokens[, n_rows[, parents]]) */
MUST_CHECK int decode_order_add_tuple(struct decode_order *order, PyObject *part);
void decode_order_done(struct decode_order *order);

#endif
