/*
 * records.c - what calls return in several words: named tuples of the module's.
 *
 * A tuple is filled from an array of new references, one of which may be NULL where making it
 * failed; then so does the tuple, and all are given up.
 */
#include "records.h"

#include "docs.h"
#include "dtype.h"

#define FIELDS(...) \
	(PyStructSequence_Field[]) \
	{ \
		__VA_ARGS__, \
		{ \
			NULL, NULL \
		} \
	}
#define FIELD(name) \
	{ \
		name, NULL \
	}

static PyTypeObject *match_type, *state_type, *result_type, *row_type;
static PyTypeObject *progress_type, *tensor_type, *stats_type;

struct kind {
	PyTypeObject **type;
	PyStructSequence_Desc desc;
};

static int add_kind(PyObject *module, struct kind *kind)
{
	const char *name = strrchr(kind->desc.name, '.') + 1;

	kind->desc.doc = docs_find(name);
	for (PyStructSequence_Field *field = kind->desc.fields; field->name; field++)
		field->doc = docs_find_in(name, field->name);
	*kind->type = PyStructSequence_NewType(&kind->desc);
	if (!*kind->type)
		return -1;
	return PyModule_AddObjectRef(module, name, (PyObject *)*kind->type);
}

static int add_of_sequences(PyObject *module)
{
	struct kind kinds[] = {
		{&match_type,
		 {"coppice.Match", NULL,
		  FIELDS(FIELD("cached"), FIELD("pending"), FIELD("claimed")), 3}},
		{&state_type,
		 {"coppice.State", NULL, FIELDS(FIELD("n_tokens"), FIELD("n_live")), 2}},
		{&result_type,
		 {"coppice.Result", NULL,
		  FIELDS(FIELD("ticket"), FIELD("status"), FIELD("value"), FIELD("attended"),
			 FIELD("mass"), FIELD("cause")),
		  6}},
		{&row_type,
		 {"coppice.Row", NULL,
		  FIELDS(FIELD("ids"), FIELD("logprobs"), FIELD("lse"), FIELD("score"),
			 FIELD("logits"), FIELD("hidden")),
		  6}},
	};
	int r = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && r == 0; i++)
		r = add_kind(module, &kinds[i]);
	return r;
}

static int add_of_connections(PyObject *module)
{
	struct kind kinds[] = {
		{&progress_type,
		 {"coppice.Progress", NULL, FIELDS(FIELD("n_bytes"), FIELD("n_done")), 2}},
		{&tensor_type,
		 {"coppice.TensorInfo", NULL,
		  FIELDS(FIELD("number"), FIELD("name"), FIELD("dtype"), FIELD("shape"),
			 FIELD("offset")),
		  5}},
		{&stats_type,
		 {"coppice.Stats", NULL,
		  FIELDS(FIELD("session"), FIELD("n_lanes"), FIELD("n_seqs"), FIELD("n_arenas"),
			 FIELD("arena_bytes"), FIELD("n_entries"), FIELD("n_decode_steps"),
			 FIELD("tokens_matched"), FIELD("tokens_computed"), FIELD("pool_bytes"),
			 FIELD("pool_used_bytes"), FIELD("draining"), FIELD("weights_bytes_read")),
		  13}},
	};
	int r = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && r == 0; i++)
		r = add_kind(module, &kinds[i]);
	return r;
}

int records_init(PyObject *module)
{
	return add_of_sequences(module) < 0 ? -1 : add_of_connections(module);
}

static PyObject *record_of(PyTypeObject *type, PyObject **items, Py_ssize_t n)
{
	PyObject *record = PyStructSequence_New(type);
	bool whole = record != NULL;

	for (Py_ssize_t i = 0; i < n; i++) {
		whole = whole && items[i];
		if (record)
			PyStructSequence_SetItem(record, i, items[i]);
		else
			Py_XDECREF(items[i]);
	}
	if (!whole)
		Py_CLEAR(record);
	return record;
}

#define RECORD(type, ...) \
	record_of(type, (PyObject *[]){__VA_ARGS__}, \
		  sizeof((PyObject *[]){__VA_ARGS__}) / sizeof(PyObject *))

static PyObject *count(uint64_t value)
{
	return PyLong_FromUnsignedLongLong(value);
}

PyObject *record_match(const struct coppice_match *match)
{
	return RECORD(match_type, count(match->cached), count(match->pending),
		      PyBool_FromLong(match->claimed));
}

PyObject *record_state(uint32_t n_tokens, uint32_t n_live)
{
	return RECORD(state_type, count(n_tokens), count(n_live));
}

PyObject *record_result(const struct coppice_result *result)
{
	return RECORD(result_type, count(result->ticket), PyLong_FromLong(result->status),
		      count(result->value), PyFloat_FromDouble(result->attended),
		      PyFloat_FromDouble(result->mass), count(result->cause));
}

PyObject *record_progress(const struct coppice_progress *progress)
{
	return RECORD(progress_type, count(progress->bytes), count(progress->bytes_done));
}

static PyObject *shape_of(const struct coppice_tensor *tensor)
{
	if (tensor->n_out == 0)
		return Py_BuildValue("(I)", tensor->n_in);
	return Py_BuildValue("(II)", tensor->n_out, tensor->n_in);
}

PyObject *record_tensor(uint32_t number, const struct coppice_tensor *tensor, uint64_t offset)
{
	return RECORD(tensor_type, count(number), PyUnicode_FromString(tensor->name),
		      PyUnicode_FromString(dtype_name(tensor->dtype)), shape_of(tensor),
		      count(offset));
}

PyObject *record_stats(const struct coppice_stats *stats)
{
	return RECORD(stats_type, count(stats->session), count(stats->n_lanes),
		      count(stats->n_seqs), count(stats->n_arenas), count(stats->arena_bytes),
		      count(stats->n_entries), count(stats->n_decode_steps),
		      count(stats->tokens_matched), count(stats->tokens_computed),
		      count(stats->pool_bytes), count(stats->pool_used_bytes),
		      PyBool_FromLong(stats->draining), count(stats->weights_bytes_read));
}

PyObject *record_row(const struct record_row *row)
{
	return RECORD(row_type, row->ids, row->logprobs, row->lse, row->score, row->logits,
		      row->hidden);
}
