/*
 * seq.c - sequences come and go, are measured and pinned: what goes over the socket. seq_open.c and
 * seq_wait.c have their prompts, entry.c what a lane does to them.
 *
 * A handle belongs to its lane: it goes with it, or with the session. A question that is not
 * answered when the sequence goes is dropped; the answer then finds nobody.
 */
#include "seq.h"

#include "client/lib/memory/arena.h"
#include "client/lib/base/clock.h"
#include "client/lib/connection/call.h"
#include "client/lib/lane/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct coppice_seq *seq_new(struct coppice_lane *lane, uint64_t handle, const struct model *model)
{
	struct coppice_seq *seq = calloc(1, sizeof(*seq));

	if (!seq)
		return NULL;
	seq->lane = lane;
	seq->handle = handle;
	seq->model = *model;
	list_add(&lane->seqs, &seq->link);
	return seq;
}

static void destroy(struct coppice_seq *seq)
{
	if (seq->asked != SEQ_UNASKED && !connection_is_foreign(seq->lane->c))
		call_drop(seq->lane->c, &seq->question);
	list_remove(&seq->link);
	free(seq);
}

void seq_drop_all(struct coppice_lane *lane)
{
	while (!list_is_empty(&lane->seqs))
		destroy(list_object(lane->seqs.next, struct coppice_seq, link));
}

struct coppice_match seq_match_of(const Coppice__SeqReply *reply)
{
	return (struct coppice_match){
		.cached = reply->cached,
		.pending = reply->pending,
		.claimed = reply->claimed,
	};
}

void seq_release(struct coppice *c, uint64_t handle)
{
	Coppice__SeqClose message = COPPICE__SEQ_CLOSE__INIT;
	struct call call = call_of("coppice_seq_close");

	message.seq = handle;
	call.request.seq_close = &message;
	call_release(c, &call);
}

static int ask_length(struct coppice_seq *seq, const char *what, Coppice__SeqLengthReply *ret)
{
	Coppice__SeqLength message = COPPICE__SEQ_LENGTH__INIT;
	struct call call = call_of(what);
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.seq = seq->handle;
	call.request.seq_length = &message;
	r = call_daemon(seq->lane->c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->seq_length)
		return call_bad_answer(seq->lane->c, what);
	*ret = *answer.reply->seq_length;
	return 0;
}

int coppice_seq_length(struct coppice_seq *seq, uint32_t *ret_n_tokens)
{
	Coppice__SeqLengthReply length;
	int r = ask_length(seq, "coppice_seq_length", &length);

	if (r == 0)
		*ret_n_tokens = length.n_tokens;
	return r;
}

int coppice_seq_live(struct coppice_seq *seq, uint32_t *ret_n_live)
{
	Coppice__SeqLengthReply length;
	int r = ask_length(seq, "coppice_seq_live", &length);

	if (r == 0)
		*ret_n_live = length.n_live;
	return r;
}

void coppice_seq_close(struct coppice_seq *seq)
{
	if (!seq)
		return;
	/* In a forked child all of it goes with the connection. */
	if (connection_is_foreign(seq->lane->c))
		return;
	seq_release(seq->lane->c, seq->handle);
	destroy(seq);
}

int coppice_seq_pin(struct coppice_seq *seq, uint64_t for_ns, uint64_t *ret_pin)
{
	Coppice__SeqPin message = COPPICE__SEQ_PIN__INIT;
	struct call call = call_of("coppice_seq_pin");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	message.seq = seq->handle;
	message.for_ns = for_ns;
	call.request.seq_pin = &message;
	r = call_daemon(seq->lane->c, &call, &answer);
	if (r < 0)
		return r;
	if (!answer.reply->pin)
		return call_bad_answer(seq->lane->c, call.what);
	if (ret_pin)
		*ret_pin = answer.reply->pin->pin;
	return 0;
}

int coppice_unpin(struct coppice *c, uint64_t pin)
{
	Coppice__Unpin message = COPPICE__UNPIN__INIT;
	struct call call = call_of("coppice_unpin");
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;

	message.pin = pin;
	call.request.unpin = &message;
	return call_daemon(c, &call, &answer);
}
