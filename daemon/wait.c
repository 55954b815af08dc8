/* wait.c - see wait.h. */
#include "wait.h"

#include <errno.h>
#include <stdio.h>

static void answer(struct sched *s, struct sched_seq *seq, const struct store_match *match,
		   int code, const char *message)
{
	struct sched_request *request = seq->wait;

	seq->wait = NULL;
	TAILQ_REMOVE(&s->waits, seq, wait_link);
	request->code = code;
	request->out.seq.seq = seq->handle;
	request->out.seq.match = *match;
	snprintf(request->message, sizeof(request->message), "%s", message);
	mailbox_reply(&s->mailbox, request);
}

static void look_at(struct sched *s, struct sched_seq *seq)
{
	struct store_match match = {0};
	int r = store_seq_rematch(seq->store, s->now_ns, &match);

	s->next_tick_ns = 0; /* it may have taken a claim over: the lease has an end */
	if (r == -EBUSY)
		answer(s, seq, &match, r, "The sequence is being extended: it waits for nobody.");
	else if (r < 0)
		answer(s, seq, &match, r, "The prompt could not be matched again: out of memory.");
	else if (!match.pending)
		answer(s, seq, &match, 0, "");
	else if (s->now_ns >= seq->wait_deadline_ns)
		answer(s, seq, &match, -ETIMEDOUT,
		       "Part of the prompt is still being computed elsewhere.");
}

int wait_begin(struct sched *s, struct sched_seq *seq, struct sched_request *request)
{
	uint64_t for_ns = request->in.seq.for_ns;

	if (seq->wait)
		return -EBUSY;
	seq->wait = request;
	seq->wait_deadline_ns = for_ns > UINT64_MAX - s->now_ns ? UINT64_MAX : s->now_ns + for_ns;
	TAILQ_INSERT_TAIL(&s->waits, seq, wait_link);
	look_at(s, seq);
	return 0;
}

void wait_look(struct sched *s)
{
	if (TAILQ_EMPTY(&s->waits))
		return;
	uint64_t epoch = store_epoch(s->store);
	bool moved = epoch != s->wait_epoch;
	struct sched_seq *seq = TAILQ_FIRST(&s->waits);

	s->wait_epoch = epoch;
	while (seq) {
		struct sched_seq *next = TAILQ_NEXT(seq, wait_link);

		if (moved || s->now_ns >= seq->wait_deadline_ns)
			look_at(s, seq);
		seq = next;
	}
}

void wait_cancel(struct sched *s, struct sched_seq *seq)
{
	static const struct store_match nothing;

	if (seq->wait)
		answer(s, seq, &nothing, -ECANCELED, "The sequence was closed while it waited.");
}

uint64_t wait_deadline_ns(const struct sched *s)
{
	uint64_t earliest = UINT64_MAX;
	const struct sched_seq *seq;

	TAILQ_FOREACH (seq, &s->waits, wait_link) {
		if (seq->wait_deadline_ns < earliest)
			earliest = seq->wait_deadline_ns;
	}
	return earliest;
}
