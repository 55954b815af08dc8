/*
 * wait.c - who waits for a prompt that another computes.
 *
 * A wait is decided when the store has changed or its time is over. In between nothing is looked
 * at: the store counts changes (its epoch), and when that has grown all waits are looked at once,
 * some in each round. Each look matches the rest of the prompt anew; what it finds counts as
 * matched, as at the opening. Whose time is over is looked for some in each round, too.
 */
#include "wait.h"

#include "daemon/sched/core/lane.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdio.h>

#define LOOKS_A_ROUND 64u /* each matches a prompt anew: a crowd is not to hold up steps */
#define DUE_A_ROUND 256u /* times of waits that are looked at */
#define DUE_PAUSE_NS UINT64_C(200000) /* between two looks for those over time */

static void answer(struct waits *w, struct sched_seq *seq, const struct store_match *match,
		   int code, const char *message)
{
	struct sched_request *request = seq->wait;
	struct seq_wait_call *call = request->room;

	seq->wait = NULL;
	w->n--;
	TAILQ_REMOVE(&w->seqs, seq, wait_link);
	TAILQ_REMOVE(&w->due, seq, due_link);
	request->code = code;
	call->match = *match;
	snprintf(request->message, sizeof(request->message), "%s", message);
	requests_answer(&w->core->requests, request);
}

/* Does its lane hold a step of it? What the step brings goes behind the path as it was then. */
static bool has_a_step(const struct sched_seq *seq)
{
	const struct sched_lane *lane = seq->lane;

	for (uint32_t i = 0; lane->state != STEP_FREE && i < lane->step.n_parts; i++)
		if (lane->step.parts[i].seq == seq)
			return true;
	return false;
}

static void look_at(struct waits *w, struct sched_seq *seq)
{
	struct store_match match = {0};
	uint32_t n_before = store_seq_n_tokens(seq->store);
	int r = -EBUSY;

	if (!has_a_step(seq))
		r = store_seq_rematch(seq->store, w->core->now_ns, &match);
	seq->session->tokens_matched += store_seq_n_tokens(seq->store) - n_before;

	w->core->next_tick_ns = 0; /* it may have taken a claim over: the lease has an end */
	if (r == -EBUSY)
		answer(w, seq, &match, r, "The sequence is being extended: it waits for nobody.");
	else if (r < 0)
		answer(w, seq, &match, r, "The prompt could not be matched again: out of memory.");
	else if (!match.pending)
		answer(w, seq, &match, 0, "");
	else if (w->core->now_ns >= seq->wait_deadline_ns)
		answer(w, seq, &match, -ETIMEDOUT,
		       "Part of the prompt is still being computed elsewhere.");
}

void waits_init(struct waits *w, struct sched_core *core)
{
	*w = (struct waits){.core = core, .due_ns = UINT64_MAX};
	TAILQ_INIT(&w->seqs);
	TAILQ_INIT(&w->due);
}

int wait_begin(struct waits *w, struct sched_seq *seq, struct sched_request *request)
{
	const struct seq_wait_call *call = request->room;
	uint64_t for_ns = call->for_ns;

	if (seq->wait)
		return -EBUSY;
	seq->wait = request;
	seq->wait_deadline_ns =
		for_ns > UINT64_MAX - w->core->now_ns ? UINT64_MAX : w->core->now_ns + for_ns;
	w->due_ns = min_u64(w->due_ns, seq->wait_deadline_ns);
	w->next_due_ns = min_u64(w->next_due_ns, seq->wait_deadline_ns);
	w->n++;
	TAILQ_INSERT_TAIL(&w->seqs, seq, wait_link);
	TAILQ_INSERT_TAIL(&w->due, seq, due_link);
	look_at(w, seq);
	return 0;
}

/* Who was looked at goes behind the others: when all were, they stand as they stood. */
static void look_at_some(struct waits *w)
{
	uint32_t n = min_u32(w->n_left, LOOKS_A_ROUND);

	w->n_left -= n;
	while (n-- > 0 && !TAILQ_EMPTY(&w->seqs)) {
		struct sched_seq *seq = TAILQ_FIRST(&w->seqs);

		TAILQ_REMOVE(&w->seqs, seq, wait_link);
		TAILQ_INSERT_TAIL(&w->seqs, seq, wait_link);
		look_at(w, seq);
	}
}

/* Returns whether it is over time, and so answered. */
static bool look_at_time(struct waits *w, struct sched_seq *seq)
{
	TAILQ_REMOVE(&w->due, seq, due_link);
	TAILQ_INSERT_TAIL(&w->due, seq, due_link);
	if (w->core->now_ns >= seq->wait_deadline_ns) {
		look_at(w, seq);
		return true;
	}
	w->next_due_ns = min_u64(w->next_due_ns, seq->wait_deadline_ns);
	return false;
}

static void look_for_overdue(struct waits *w)
{
	uint32_t n_over = 0;

	if (w->n_due_left == 0) {
		w->n_due_left = w->n;
		w->next_due_ns = UINT64_MAX;
	}
	for (uint32_t n = 0; n < DUE_A_ROUND && n_over < LOOKS_A_ROUND && w->n_due_left > 0; n++) {
		w->n_due_left = TAILQ_EMPTY(&w->due) ? 0 : w->n_due_left - 1;
		if (!TAILQ_EMPTY(&w->due))
			n_over += look_at_time(w, TAILQ_FIRST(&w->due));
	}
	w->due_ns = w->n_due_left > 0 ? w->core->now_ns
				      : max_u64(w->next_due_ns, w->core->now_ns + DUE_PAUSE_NS);
}

void waits_look(struct waits *w)
{
	uint64_t epoch = store_epoch(w->core->store);

	if (epoch != w->epoch)
		w->n_left = w->n;
	w->epoch = epoch;
	if (w->n_left > 0)
		look_at_some(w);
	if (w->core->now_ns >= w->due_ns)
		look_for_overdue(w);
}

void wait_cancel(struct waits *w, struct sched_seq *seq)
{
	static const struct store_match nothing;

	if (seq->wait)
		answer(w, seq, &nothing, -ECANCELED, "The sequence was closed while it waited.");
}
