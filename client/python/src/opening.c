/*
 * opening.c - prompts become sequences, and what others compute of them is waited for.
 *
 * Many prompts are opened all or none. Objects are made of them one by one; should that fail the
 * sequences that have no object yet are closed.
 */
#include "opening.h"

#include "blocking.h"
#include "fault.h"
#include "ids.h"
#include "number.h"
#include "records.h"

#include <errno.h>
#include <stdlib.h>

/* ---- one ------------------------------------------------------------------------------------ */

static bool check_model(const struct lane *lane, const struct model *model)
{
	if (model->connection == lane->connection)
		return true;
	fault_raise(-EINVAL, "the model is another connection's: open it on this one");
	return false;
}

static PyObject *open_one(struct lane *lane, struct model *model, const struct ids *ids,
			  uint64_t salt)
{
	struct coppice_lane *entered = lane_enter(lane);
	struct coppice_match match;
	struct coppice_seq *seq;
	PyObject *made = NULL;
	int r;

	if (!entered)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_seq_open(entered, model->number, ids->items, ids->n, salt, &seq, &match);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(lane->connection->c, r);
	else
		made = sequence_make(lane, model, seq, &match);
	lane_leave(lane);
	return made;
}

PyObject *opening_open(struct lane *lane, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"model", "tokens", "salt", NULL};
	PyObject *model, *tokens, *seq;
	uint64_t salt = 0;
	struct ids ids;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|$O&:open", names, types.model, &model,
					 &tokens, NUMBER_64(&salt)) ||
	    !check_model(lane, (struct model *)model) || ids_read(tokens, "token", &ids) < 0)
		return NULL;
	seq = open_one(lane, (struct model *)model, &ids, salt);
	ids_done(&ids);
	return seq;
}

/* ---- many ----------------------------------------------------------------------------------- */

struct many {
	uint32_t n, n_read; /* ids of n_read prompts have been read */
	struct coppice_prompt *prompts;
	struct ids *ids;
	struct model **models; /* borrowed of the list */
	struct coppice_seq **seqs;
	struct coppice_match *matches;
};

static void many_done(struct many *many)
{
	for (uint32_t i = 0; i < many->n_read; i++)
		ids_done(&many->ids[i]);
	free(many->prompts);
	free(many->ids);
	free(many->models);
	free(many->seqs);
	free(many->matches);
}

static int many_init(struct many *many, Py_ssize_t n)
{
	size_t room = (size_t)n + 1;

	*many = (struct many){.n = (uint32_t)n};
	many->prompts = calloc(room, sizeof(*many->prompts));
	many->ids = calloc(room, sizeof(*many->ids));
	many->models = calloc(room, sizeof(*many->models));
	many->seqs = calloc(room, sizeof(*many->seqs));
	many->matches = calloc(room, sizeof(*many->matches));
	if (many->prompts && many->ids && many->models && many->seqs && many->matches)
		return 0;
	PyErr_NoMemory();
	return -1;
}

static int read_prompt(const struct lane *lane, PyObject *item, struct many *many)
{
	uint32_t i = many->n_read;
	PyObject *model, *tokens;
	uint64_t salt = 0;

	if (!PyTuple_Check(item)) {
		PyErr_SetString(PyExc_TypeError, "a prompt is (model, tokens) or (model, tokens, "
						 "salt)");
		return -1;
	}
	if (!PyArg_ParseTuple(item, "O!O|O&:open_many", types.model, &model, &tokens,
			      NUMBER_64(&salt)) ||
	    !check_model(lane, (struct model *)model) ||
	    ids_read(tokens, "token", &many->ids[i]) < 0)
		return -1;
	many->n_read++;
	many->models[i] = (struct model *)model;
	many->prompts[i] = (struct coppice_prompt){.model = many->models[i]->number,
						   .n_tokens = many->ids[i].n,
						   .tokens = many->ids[i].items,
						   .salt = salt};
	return 0;
}

static PyObject *objects_of(struct lane *lane, struct many *many)
{
	PyObject *list = PyList_New((Py_ssize_t)many->n);
	uint32_t i = 0;

	for (; list && i < many->n; i++) {
		PyObject *seq =
			sequence_make(lane, many->models[i], many->seqs[i], &many->matches[i]);

		if (!seq || PyList_SetItem(list, (Py_ssize_t)i, seq) < 0)
			Py_CLEAR(list);
	}
	for (; i < many->n; i++)
		coppice_seq_close(many->seqs[i]);
	return list;
}

static PyObject *open_all(struct lane *lane, struct many *many)
{
	struct coppice_lane *entered = lane_enter(lane);
	PyObject *list = NULL;
	int r;

	if (!entered)
		return NULL;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_seq_open_many(entered, many->prompts, many->n, many->seqs, many->matches);
	Py_END_ALLOW_THREADS;
	if (r < 0)
		fault_of(lane->connection->c, r);
	else
		list = objects_of(lane, many);
	lane_leave(lane);
	return list;
}

static PyObject *open_list(struct lane *lane, PyObject *prompts)
{
	Py_ssize_t n = PyList_Size(prompts);
	PyObject *list = NULL;
	struct many many;
	int r = many_init(&many, n);

	for (Py_ssize_t i = 0; i < n && r == 0; i++)
		r = read_prompt(lane, PyList_GetItem(prompts, i), &many);
	if (r == 0)
		list = n > 0 ? open_all(lane, &many) : PyList_New(0);
	many_done(&many);
	return list;
}

PyObject *opening_open_many(struct lane *lane, PyObject *prompts)
{
	PyObject *copy = PySequence_List(prompts), *list;

	if (!copy)
		return NULL;
	list = open_list(lane, copy);
	Py_DECREF(copy);
	return list;
}

/* ---- what is pending ------------------------------------------------------------------------ */

struct wait {
	struct coppice_seq *seq;
	struct coppice_match match;
};

static int wait_slice(void *context, uint64_t timeout_ns)
{
	struct wait *w = context;

	return coppice_seq_wait(w->seq, timeout_ns, &w->match);
}

/* Leaves the lane. */
static PyObject *take_match(struct sequence *seq, int code, const struct coppice_match *match)
{
	if (code == 0 || code == -ETIMEDOUT)
		seq->match = *match;
	if (code < 0)
		fault_of(seq->lane->connection->c, code);
	lane_leave(seq->lane);
	return code ? NULL : record_match(match);
}

PyObject *opening_wait(struct sequence *seq, PyObject *args, PyObject *kwargs)
{
	struct wait w = {.match = seq->match};
	uint64_t timeout_ns;
	int r = 0;

	if (duration_read_timeout(args, kwargs, "|O:wait", &timeout_ns) < 0)
		return NULL;
	w.seq = sequence_enter(seq);
	if (!w.seq)
		return NULL;
	if (w.match.pending > 0)
		r = blocking_run(wait_slice, &w, timeout_ns);
	return take_match(seq, r, &w.match);
}

PyObject *opening_ask(struct sequence *seq, PyObject *args, PyObject *kwargs)
{
	struct coppice_seq *entered;
	uint64_t timeout_ns;

	if (duration_read_timeout(args, kwargs, "|O:ask", &timeout_ns) < 0)
		return NULL;
	entered = sequence_enter(seq);
	if (!entered)
		return NULL;
	return lane_leave_none(seq->lane, coppice_seq_wait_async(entered, timeout_ns));
}

PyObject *opening_answer(struct sequence *seq, PyObject *unused)
{
	struct coppice_match match = seq->match;
	struct coppice_seq *entered = sequence_try_enter(seq);
	int r;

	(void)unused;
	if (!entered)
		return lane_not_yet(Py_None);
	r = coppice_seq_wait_poll(entered, &match);
	if (r == -EAGAIN)
		return lane_leave_none(seq->lane, 0);
	return take_match(seq, r, &match);
}
