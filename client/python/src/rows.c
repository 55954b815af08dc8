/*
 * rows.c - what comes of tokens, as the daemon writes it and as Python has it.
 *
 * A row is a struct coppice_row, then its logits, then the hidden row, each where it was asked for.
 */
#include "rows.h"

#include "records.h"
#include "tensor.h"
#include "proto/arith.h"

#define ROW_ALIGN 16u

uint32_t rows_stride(const struct rows *rows)
{
	uint32_t bytes = (uint32_t)sizeof(struct coppice_row);

	if (rows->want & COPPICE_WANT_LOGITS)
		bytes += rows->n_vocab * (uint32_t)sizeof(float);
	if (rows->want & COPPICE_WANT_HIDDEN)
		bytes += rows->hidden * (uint32_t)sizeof(float);
	return (uint32_t)round_up(bytes, ROW_ALIGN);
}

static PyObject *ids_of(const struct coppice_row *row)
{
	PyObject *ids = PyTuple_New(row->n_top);

	for (uint32_t i = 0; ids && i < row->n_top; i++) {
		PyObject *id = PyLong_FromUnsignedLong(row->top[i].id);

		if (!id || PyTuple_SetItem(ids, i, id) < 0)
			Py_CLEAR(ids);
	}
	return ids;
}

static PyObject *logprobs_of(const struct coppice_row *row)
{
	PyObject *logprobs = PyTuple_New(row->n_top);

	for (uint32_t i = 0; logprobs && i < row->n_top; i++) {
		double value = (double)row->top[i].logit - (double)row->lse;
		PyObject *logprob = PyFloat_FromDouble(value);

		if (!logprob || PyTuple_SetItem(logprobs, i, logprob) < 0)
			Py_CLEAR(logprobs);
	}
	return logprobs;
}

static PyObject *none(void)
{
	Py_RETURN_NONE;
}

static PyObject *floats_at(uint8_t *base, uint32_t n, PyObject *owner)
{
	struct dlpack_view view = {.base = base,
				   .device_type = DLPACK_CPU,
				   .dtype = dtype_by_code(COPPICE_FP32),
				   .n_dims = 1,
				   .shape = {n}};

	return tensor_make(owner, &view);
}

static PyObject *row_at(const struct rows *rows, uint8_t *base, PyObject *owner)
{
	const struct coppice_row *row = (const struct coppice_row *)base;
	bool logits = rows->want & COPPICE_WANT_LOGITS, hidden = rows->want & COPPICE_WANT_HIDDEN;
	uint8_t *first = base + sizeof(*row);
	uint8_t *second = first + (logits ? rows->n_vocab * sizeof(float) : 0);
	struct record_row record = {
		.ids = ids_of(row),
		.logprobs = logprobs_of(row),
		.lse = PyFloat_FromDouble((double)row->lse),
		.score = PyFloat_FromDouble(rows->want & COPPICE_WANT_SCORE ? (double)row->score
									    : Py_NAN),
		.logits = logits ? floats_at(first, rows->n_vocab, owner) : none(),
		.hidden = hidden ? floats_at(second, rows->hidden, owner) : none(),
	};

	return record_row(&record);
}

PyObject *rows_list(const struct rows *rows, uint8_t *base, PyObject *owner)
{
	PyObject *list = PyList_New(rows->n);
	uint32_t stride = rows_stride(rows);

	for (uint32_t i = 0; list && i < rows->n; i++) {
		PyObject *row = row_at(rows, base + (size_t)i * stride, owner);

		if (!row || PyList_SetItem(list, i, row) < 0)
			Py_CLEAR(list);
	}
	return list;
}
