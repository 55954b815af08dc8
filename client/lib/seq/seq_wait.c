/*
 * seq_wait.c - waiting for what another sequence computes: until it is there, or by asking and
 * looking later.
 *
 * The daemon keeps the time of a wait and answers at its end at the latest. A question is one
 * request of the sequence's own; it ends with its answer, with the sequence, or with the
 * connection. A wait that the daemon is late for becomes such a question.
 */
#include "client/lib/base/clock.h"
#include "client/lib/lane/lane.h"
#include "seq.h"

#include <errno.h>

/* How much later than the time limit the daemon's answer may come. */
#define GRACE_NS (2 * NS_PER_S)

static Coppice__SeqWait message_of(const struct coppice_seq *seq, uint64_t timeout_ns)
{
	Coppice__SeqWait message = COPPICE__SEQ_WAIT__INIT;

	message.seq = seq->handle;
	message.timeout_ns = timeout_ns;
	return message;
}

/* r: what came of the call that has the answer. */
static int take_match(struct coppice_seq *seq, const char *what, int r, const struct answer *answer,
		      struct coppice_match *ret_match)
{
	if (r < 0 && r != -ETIMEDOUT)
		return r;
	if (answer->reply && answer->reply->seq)
		seq->match = seq_match_of(answer->reply->seq);
	else if (r == 0)
		return call_bad_answer(seq->lane->c, what);
	if (ret_match)
		*ret_match = seq->match;
	return r;
}

static int refuse_another(struct coppice *c, const char *what)
{
	return explain(c->key, -EBUSY,
		       "%s: the sequence was asked about already; take the answer with "
		       "coppice_seq_wait_poll first",
		       what);
}

/* An answer that comes too late may have moved the sequence on: no tokens go behind the old match
 * until it is there. */
static int await_answer(struct coppice_seq *seq, uint64_t timeout_ns,
			struct coppice_match *ret_match)
{
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r = call_end_or_stay(seq->lane->c, &seq->question, clock_add_ns(timeout_ns, GRACE_NS),
				 &answer);

	seq->asked = r == -ETIMEDOUT && !answer.reply ? SEQ_OVERDUE : SEQ_UNASKED;
	return take_match(seq, seq->question.what, r, &answer, ret_match);
}

int coppice_seq_wait(struct coppice_seq *seq, uint64_t timeout_ns, struct coppice_match *ret_match)
{
	uint64_t deadline_ns = clock_add_ns(clock_now_ns(), timeout_ns);
	struct call call = call_of("coppice_seq_wait");
	struct coppice *c = seq->lane->c;
	Coppice__SeqWait message;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (seq->asked == SEQ_ASKED)
		return refuse_another(c, call.what);
	if (seq->asked == SEQ_OVERDUE) {
		r = await_answer(seq, timeout_ns, ret_match);
		timeout_ns = clock_left_ns(deadline_ns);
		if (r != -ETIMEDOUT || seq->asked != SEQ_UNASKED || timeout_ns == 0)
			return r;
	}
	message = message_of(seq, timeout_ns);
	call.request.seq_wait = &message;
	r = call_begin(c, &call, &seq->question);
	return r < 0 ? r : await_answer(seq, timeout_ns, ret_match);
}

int seq_check_unasked(struct coppice_seq *seq, const char *what)
{
	if (seq->asked == SEQ_UNASKED)
		return 0;
	return explain(seq->lane->c->key, -EBUSY,
		       "%s: the sequence's prompt is being asked about, and more of it may be "
		       "cached by now; take the answer with coppice_seq_wait_poll first",
		       what);
}

int coppice_seq_wait_async(struct coppice_seq *seq, uint64_t timeout_ns)
{
	Coppice__SeqWait message = message_of(seq, timeout_ns);
	struct call call = call_of("coppice_seq_wait_async");
	struct coppice *c = seq->lane->c;
	int r = connection_check(c);

	if (r < 0)
		return r;
	if (seq->asked != SEQ_UNASKED)
		return refuse_another(c, call.what);
	call.is_polled = true;
	call.request.seq_wait = &message;
	r = call_begin(c, &call, &seq->question);
	seq->asked = r == 0 ? SEQ_ASKED : SEQ_UNASKED;
	return r;
}

int coppice_seq_wait_poll(struct coppice_seq *seq, struct coppice_match *ret_match)
{
	static const char what[] = "coppice_seq_wait_poll";
	struct coppice *c = seq->lane->c;
	CLEANUP_ANSWER struct answer answer = ANSWER_NONE;
	int r;

	if (seq->asked == SEQ_UNASKED)
		return explain(c->key, -EINVAL,
			       "%s: the sequence was not asked about; call "
			       "coppice_seq_wait_async first",
			       what);
	r = call_poll(c, &seq->question, &answer);
	if (r == -EAGAIN)
		return r;
	seq->asked = SEQ_UNASKED;
	return take_match(seq, what, r, &answer, ret_match);
}
