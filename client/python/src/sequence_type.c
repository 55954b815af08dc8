/*
 * sequence_type.c - what a sequence does, as Python calls it.
 *
 * What submits an entry returns its ticket and keeps the interpreter's lock, as it does not block.
 */
#include "sequence_type.h"

#include "decode.h"
#include "fault.h"
#include "ids.h"
#include "number.h"
#include "opening.h"
#include "records.h"
#include "sequence.h"

#include <errno.h>

/* ---- entries -------------------------------------------------------------------------------- */

static PyObject *seq_extend(struct sequence *self, PyObject *tokens)
{
	struct coppice_seq *entered;
	uint64_t ticket = 0;
	struct ids ids;
	int r;

	if (ids_read(tokens, "token", &ids) < 0)
		return NULL;
	entered = sequence_enter(self);
	if (!entered) {
		ids_done(&ids);
		return NULL;
	}
	r = coppice_seq_extend(entered, ids.items, ids.n, &ticket);
	ids_done(&ids);
	return lane_leave_ticket(self->lane, r, ticket);
}

static PyObject *draft(struct sequence *self, const struct ids *ids, const uint32_t *parents)
{
	struct coppice_seq *entered = sequence_enter(self);
	uint64_t ticket = 0;
	int r;

	if (!entered)
		return NULL;
	r = coppice_seq_draft(entered, ids->items, parents, ids->n, &ticket);
	return lane_leave_ticket(self->lane, r, ticket);
}

static PyObject *draft_tree(struct sequence *self, const struct ids *ids, PyObject *list)
{
	PyObject *ticket = NULL;
	struct ids parents;

	if (ids_read_parents(list, &parents) < 0)
		return NULL;
	if (parents.n == ids->n)
		ticket = draft(self, ids, parents.items);
	else
		fault_format(-EINVAL, "%u parents are given for %u tokens", parents.n, ids->n);
	ids_done(&parents);
	return ticket;
}

static PyObject *seq_draft(struct sequence *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"tokens", "parents", NULL};
	PyObject *tokens, *parents = Py_None, *ticket;
	struct ids ids;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:draft", names, &tokens, &parents) ||
	    ids_read(tokens, "token", &ids) < 0)
		return NULL;
	if (parents == Py_None)
		ticket = draft(self, &ids, NULL);
	else
		ticket = draft_tree(self, &ids, parents);
	ids_done(&ids);
	return ticket;
}

static PyObject *seq_accept(struct sequence *self, PyObject *list)
{
	struct coppice_seq *entered;
	uint64_t ticket = 0;
	struct ids ids;
	int r;

	if (ids_read(list, "index", &ids) < 0)
		return NULL;
	entered = sequence_enter(self);
	if (!entered) {
		ids_done(&ids);
		return NULL;
	}
	r = coppice_seq_accept(entered, ids.n ? ids.items : NULL, ids.n, &ticket);
	ids_done(&ids);
	return lane_leave_ticket(self->lane, r, ticket);
}

static PyObject *seq_trim(struct sequence *self, PyObject *n_tokens)
{
	struct coppice_seq *entered;
	uint64_t ticket = 0;
	uint32_t n;
	int r;

	if (!number_read_32(n_tokens, &n))
		return NULL;
	entered = sequence_enter(self);
	if (!entered)
		return NULL;
	r = coppice_seq_trim(entered, n, &ticket);
	return lane_leave_ticket(self->lane, r, ticket);
}

static PyObject *seq_sparse(struct sequence *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"tau",	       "stride",	"block_tokens",
				"sink_blocks", "recent_blocks", NULL};
	struct coppice_sparse sparse = {.size = sizeof(sparse)};
	struct coppice_seq *entered;
	uint64_t ticket = 0;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$dO&O&O&O&:sparse", names, &sparse.tau,
					 NUMBER_32(&sparse.stride), NUMBER_32(&sparse.block_tokens),
					 NUMBER_32(&sparse.sink_blocks),
					 NUMBER_32(&sparse.recent_blocks)))
		return NULL;
	entered = sequence_enter(self);
	if (!entered)
		return NULL;
	r = coppice_seq_sparse(entered, &sparse, &ticket);
	return lane_leave_ticket(self->lane, r, ticket);
}

/* ---- calls that block ----------------------------------------------------------------------- */

static PyObject *seq_fork(struct sequence *self, PyObject *unused)
{
	struct coppice_seq *entered = sequence_enter(self), *twin = NULL;
	PyObject *made = NULL;
	int r;

	(void)unused;
	if (!entered)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_seq_fork(entered, &twin);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(self->lane->connection->c, r);
	else
		made = sequence_make(self->lane, self->model, twin, &self->match);
	lane_leave(self->lane);
	return made;
}

/* Seconds that are too many for nanoseconds are for ever, as None is: what was given is said. */
static PyObject *pin_refused(struct lane *lane, int code, PyObject *seconds, uint64_t for_ns)
{
	const char *sentence = coppice_explain(lane->connection->c);

	if (for_ns == COPPICE_FOREVER && seconds != Py_None)
		fault_format(code, "%s %R seconds were given", sentence, seconds);
	else
		fault_raise(code, sentence);
	lane_leave(lane);
	return NULL;
}

static PyObject *seq_pin(struct sequence *self, PyObject *seconds)
{
	struct coppice_seq *entered;
	uint64_t for_ns, pin = 0;
	int r;

	if (duration_read(seconds, &for_ns) < 0)
		return NULL;
	entered = sequence_enter(self);
	if (!entered)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_seq_pin(entered, for_ns, &pin);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		return pin_refused(self->lane, r, seconds, for_ns);
	return lane_leave_ticket(self->lane, r, pin);
}

static PyObject *seq_state(struct sequence *self, PyObject *unused)
{
	struct coppice_seq *entered = sequence_enter(self);
	uint32_t n_tokens = 0, n_live = 0;
	int r;

	(void)unused;
	if (!entered)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_seq_length(entered, &n_tokens);
	if (r == 0)
		r = coppice_seq_live(entered, &n_live);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(self->lane->connection->c, r);
	lane_leave(self->lane);
	return r < 0 ? NULL : record_state(n_tokens, n_live);
}

static PyObject *seq_close(struct sequence *self, PyObject *unused)
{
	(void)unused;
	sequence_close(self);
	Py_RETURN_NONE;
}

static void seq_dealloc(struct sequence *self)
{
	if (self->lane) {
		sequence_close(self);
		Py_DECREF(self->lane);
		Py_DECREF(self->model);
	}
	object_free(self);
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyObject *seq_closed(struct sequence *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(self->closed || self->lane->closed ||
			       self->lane->connection->closed);
}

static PyObject *seq_match(struct sequence *self, void *unused)
{
	(void)unused;
	return record_match(&self->match);
}

static PyMethodDef methods[] = {
	{"close", (PyCFunction)seq_close, METH_NOARGS, NULL},
	{"wait", KEYWORDS(opening_wait), METH_VARARGS | METH_KEYWORDS, NULL},
	{"ask", KEYWORDS(opening_ask), METH_VARARGS | METH_KEYWORDS, NULL},
	{"answer", (PyCFunction)opening_answer, METH_NOARGS, NULL},
	{"state", (PyCFunction)seq_state, METH_NOARGS, NULL},
	{"decode", KEYWORDS(decode_of_sequence), METH_VARARGS | METH_KEYWORDS, NULL},
	{"extend", (PyCFunction)seq_extend, METH_O, NULL},
	{"draft", KEYWORDS(seq_draft), METH_VARARGS | METH_KEYWORDS, NULL},
	{"accept", (PyCFunction)seq_accept, METH_O, NULL},
	{"trim", (PyCFunction)seq_trim, METH_O, NULL},
	{"fork", (PyCFunction)seq_fork, METH_NOARGS, NULL},
	{"pin", (PyCFunction)seq_pin, METH_O, NULL},
	{"sparse", KEYWORDS(seq_sparse), METH_VARARGS | METH_KEYWORDS, NULL},
	CONTEXT_ENTER,
	CONTEXT_EXIT,
	{NULL},
};

static PyMemberDef members[] = {
	{"lane", T_OBJECT_EX, offsetof(struct sequence, lane), READONLY, NULL},
	{"model", T_OBJECT_EX, offsetof(struct sequence, model), READONLY, NULL},
	{"cached", T_UINT, offsetof(struct sequence, match.cached), READONLY, NULL},
	{NULL},
};

static PyGetSetDef getters[] = {
	{"closed", (getter)seq_closed, NULL, NULL, NULL},
	{"match", (getter)seq_match, NULL, NULL, NULL},
	{NULL},
};

static PyType_Slot slots[] = {
	TYPE_DOC,
	{Py_tp_dealloc, seq_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_members, members},
	{Py_tp_getset, getters},
	{0, NULL},
};

PyTypeObject *sequence_type_new(PyObject *module)
{
	return type_new(module, &(PyType_Spec){.name = "coppice.Sequence",
					       .basicsize = sizeof(struct sequence),
					       .flags = Py_TPFLAGS_DEFAULT |
							Py_TPFLAGS_DISALLOW_INSTANTIATION,
					       .slots = slots});
}
