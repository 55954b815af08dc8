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
	order->seqs = calloc(room, sizeof(*order->seqs));
	order->ids = calloc(room, sizeof(*order->ids));
	order->parents = calloc(room, sizeof(*order->parents));
	order->objects = calloc(room, sizeof(*order->objects));
	if (order->seqs && order->ids && order->parents && order->objects)
		return 0;
	PyErr_NoMemory();
	return -1;
}

void decode_order_done(struct decode_order *order)
{
	for (uint32_t i = 0; i < order->n; i++) {
		ids_done(&order->ids[i]);
		ids_done(&order->parents[i]);
		Py_DECREF(order->objects[i]);
	}
	free(order->seqs);
	free(order->ids);
	free(order->parents);
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

/* Of the part that is added next. */
static int read_parents(struct decode_order *order, PyObject *list)
{
	struct ids *parents = &order->parents[order->n];

	if (list == Py_None)
		return 0;
	if (ids_read_parents(list, parents) < 0)
		return -1;
	if (parents->n == order->ids[order->n].n)
		return 0;
	fault_format(-EINVAL, "%u parents are given for %u tokens", parents->n,
		     order->ids[order->n].n);
	ids_done(parents);
	return -1;
}

static void append(struct decode_order *order, struct sequence *seq, long n_rows)
{
	const struct ids *ids = &order->ids[order->n];

	Py_INCREF(seq);
	order->objects[order->n] = seq;
	order->seqs[order->n] =
		(struct coppice_decode_seq){.ids = ids->items,
					    .n_new = ids->n,
					    .first_wanted = ids->n - (uint32_t)n_rows,
					    .parents = order->parents[order->n].items};
	order->rows.n += (uint32_t)n_rows;
	order->n++;
}

int decode_order_add(struct decode_order *order, PyObject *seq, const struct decode_part *part)
{
	struct sequence *sequence = (struct sequence *)seq;
	struct ids *ids = &order->ids[order->n];

	if (Py_TYPE(seq) != types.sequence) {
		PyErr_SetString(PyExc_TypeError, "a coppice.Sequence is wanted");
		return -1;
	}
	if (check_part(order, sequence) < 0 || ids_read(part->tokens, "token", ids) < 0)
		return -1;
	if (check_rows(ids->n, part->n_rows) < 0 || read_parents(order, part->parents) < 0) {
		ids_done(ids);
		return -1;
	}
	append(order, sequence, part->n_rows);
	return 0;
}

int decode_order_add_tuple(struct decode_order *order, PyObject *part)
{
	struct decode_part read = {.n_rows = 1, .parents = Py_None};
	PyObject *seq;

	if (!PyTuple_Check(part)) {
		PyErr_SetString(PyExc_TypeError, "a part is (sequence, tokens[, n_rows[, "
						 "parents]])");
		return -1;
	}
	if (!PyArg_ParseTuple(part, "OO|lO:decode", &seq, &read.tokens, &read.n_rows,
			      &read.parents))
		return -1;
	return decode_order_add(order, seq, &read);
}
