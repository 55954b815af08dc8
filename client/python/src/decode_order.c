/*
 * decode_order.c - what is asked of a decode, read from Python's arguments.
 *
 * All is read before the lane is entered: reading may run Python's code, a list's or an array's.
 */
#include "decode_order.h"

#include "fault.h"

#include <errno.h>
#include <stdlib.h>

int decode_order_init(struct decode_order *order, Py_ssize_t n)
{
	size_t room = (size_t)n + 1;

	order->n = 0;
	order->room = (uint32_t)n;
	order->seqs = calloc(room, sizeof(*order->seqs));
	order->ids = calloc(room, sizeof(*order->ids));
	order->objects = calloc(room, sizeof(*order->objects));
	if (order->seqs && order->ids && order->objects)
		return 0;
	PyErr_NoMemory();
	return -1;
}

void decode_order_done(struct decode_order *order)
{
	for (uint32_t i = 0; i < order->n; i++) {
		ids_done(&order->ids[i]);
		Py_DECREF(order->objects[i]);
	}
	free(order->seqs);
	free(order->ids);
	free(order->objects);
}

static int check_part(const struct decode_order *order, const struct sequence *seq)
{
	if (seq->model->shape.n_vocab == 0) {
		fault_raise(-EINVAL, "the sequence's model is no program: extend and step it");
		return -1;
	}
	if (order->n > 0 && seq->model->number != order->objects[0]->model->number) {
		fault_raise(-EINVAL, "a decode is of sequences of one model");
		return -1;
	}
	return 0;
}

static int check_rows(uint32_t n_tokens, long n_rows)
{
	if (n_rows >= 0 && (unsigned long)n_rows <= n_tokens)
		return 0;
	fault_format(-EINVAL, "%ld rows are wanted of %u tokens", n_rows, n_tokens);
	return -1;
}

int decode_order_add(struct decode_order *order, PyObject *seq, PyObject *tokens, long n_rows)
{
	struct sequence *sequence = (struct sequence *)seq;
	struct ids *ids = &order->ids[order->n];

	if (Py_TYPE(seq) != types.sequence) {
		PyErr_SetString(PyExc_TypeError, "a coppice.Sequence is wanted");
		return -1;
	}
	if (check_part(order, sequence) < 0 || ids_read(tokens, "token", ids) < 0)
		return -1;
	Py_INCREF(seq);
	order->objects[order->n] = sequence;
	order->seqs[order->n++] =
		(struct coppice_decode_seq){.ids = ids->items,
					    .n_new = ids->n,
					    .first_wanted = ids->n - (uint32_t)n_rows};
	order->rows.n += (uint32_t)n_rows;
	return check_rows(ids->n, n_rows);
}

int decode_order_add_tuple(struct decode_order *order, PyObject *part)
{
	PyObject *seq, *tokens;
	long n_rows = 1;

	if (!PyTuple_Check(part)) {
		PyErr_SetString(PyExc_TypeError, "a part is (sequence, tokens) or (sequence, "
						 "tokens, n_rows)");
		return -1;
	}
	if (!PyArg_ParseTuple(part, "OO|l:decode", &seq, &tokens, &n_rows))
		return -1;
	return decode_order_add(order, seq, tokens, n_rows);
}
