/* wait.c - see wait.h. */
#include "wait.h"

#include <errno.h>
#include <stdio.h>

#define LOOKS_A_ROUND 64u /* each matches a prompt anew: a crowd is not to hold up steps */
#define DUE_PAUSE_NS UINT64_C(200000) /* between two looks for those over time */

static void answer(struct sched *s, struct sched_seq *seq, const struct store_match *match,
		   int code, const char *message)
{
	struct sched_request *request = seq->wait;

	seq->wait = NULL;
	s->n_waits--;
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
	uint32_t n_before = store_seq_n_tokens(seq->store);
	int r = store_seq_rematch(seq->store, s->now_ns, &match);

	seq->session->tokens_matched += store_seq_n_tokens(seq->store) - n_before;

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
	if (seq->wait_deadline_ns < s->wait_due_ns)
		s->wait_due_ns = seq->wait_deadline_ns;
	s->n_waits++;
	TAILQ_INSERT_TAIL(&s->waits, seq, wait_link);
	look_at(s, seq);
	return 0;
}

/* Who was looked at goes behind the others: when all were, they stand as they stood. */
static void look_at_some(struct sched *s)
{
	uint32_t n = s->n_waits_left < LOOKS_A_ROUND ? s->n_waits_left : LOOKS_A_ROUND;

	s->n_waits_left -= n;
	while (n-- > 0 && !TAILQ_EMPTY(&s->waits)) {
		struct sched_seq *seq = TAILQ_FIRST(&s->waits);

		TAILQ_REMOVE(&s->waits, seq, wait_link);
		TAILQ_INSERT_TAIL(&s->waits, seq, wait_link);
		look_at(s, seq);
	}
}

static void look_for_overdue(struct sched *s)
{
	struct sched_seq *seq, *next;
	uint64_t due_ns = UINT64_MAX;

	for (seq = TAILQ_FIRST(&s->waits); seq; seq = next) {
		next = TAILQ_NEXT(seq, wait_link);
		if (s->now_ns >= seq->wait_deadline_ns)
			look_at(s, seq);
		else if (seq->wait_deadline_ns < due_ns)
			due_ns = seq->wait_deadline_ns;
	}
	s->wait_due_ns = due_ns < s->now_ns + DUE_PAUSE_NS ? s->now_ns + DUE_PAUSE_NS : due_ns;
}

void wait_look(struct sched *s)
{
	uint64_t epoch = store_epoch(s->store);

	if (epoch != s->wait_epoch)
		s->n_waits_left = s->n_waits;
	s->wait_epoch = epoch;
	if (s->n_waits_left > 0)
		look_at_some(s);
	if (s->now_ns >= s->wait_due_ns)
		look_for_overdue(s);
}

void wait_cancel(struct sched *s, struct sched_seq *seq)
{
	static const struct store_match nothing;

	if (seq->wait)
		answer(s, seq, &nothing, -ECANCELED, "The sequence was closed while it waited.");
}

uint64_t wait_deadline_ns(const struct sched *s)
{
	return s->n_waits_left > 0 ? s->now_ns : s->wait_due_ns;
}
