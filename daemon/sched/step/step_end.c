/*
 * step_end.c - how a step leaves its lane, done or failed.
 *
 *      IN_BATCH ----> COMPLETED ---> FREE    decode: the client goes on while tokens are published
 *         or    --------------------> FREE    prefill, when its last slice is done; failures
 *      WAITING_TURN
 *
 * An entry completes exactly once. Of decode it does so before the sequences advance: a client that
 * computes its next layer meanwhile is what is gained. Whatever fails, the sequences of the step
 * know why (seq_void).
 */
#include "step_end.h"

#include "daemon/sched/core/away.h"
#include "daemon/base/log.h"
#include "daemon/sched/seq/pace.h"
#include "daemon/sched/seq/seq.h"
#include "step_check.h"

#include <errno.h>

/* After its last layer a plain extension is published; a draft awaits its accept. */
static int seq_advance(struct sched_core *core, struct sched_seq *seq)
{
	store_seq_progress(seq->store, core->now_ns);
	if (++seq->next_layer < seq->model->shape.n_layers)
		return 0;
	seq->computed = seq->draft;
	if (seq->draft)
		return 0;
	uint32_t n_live = store_seq_n_live(seq->store);
	int r = store_seq_publish(seq->store, core->now_ns);

	if (r < 0)
		return r;
	seq->session->tokens_computed += n_live;
	seq_clear_extension(seq);
	return 0;
}

static struct outcome cannot_advance(struct sched_core *core, struct sched_seq *seq, int r,
				     uint32_t where)
{
	struct outcome outcome = outcome_of_store(r, where);

	if (r == -ENOMEM)
		log_warning("no memory to publish what a sequence has computed: its extension is "
			    "void");
	seq_void(core, seq, &outcome);
	return outcome;
}

/* ret_failed: the last failure, if there is any. */
static void advance_parts(struct sched_core *core, struct sched_lane *lane,
			  struct outcome *ret_failed)
{
	for (uint32_t i = 0; i < lane->step.n_parts; i++) {
		struct sched_seq *seq = lane->step.parts[i].seq;
		int r = seq_advance(core, seq);

		if (r < 0)
			*ret_failed = cannot_advance(core, seq, r, i);
	}
}

static void count_decode(struct sched_core *core, struct sched_lane *lane)
{
	lane->session->decode_steps++;
	pace_finished(core, lane);
	away_begin(core, lane);
}

void steps_finish(struct sched_core *core)
{
	static const struct outcome exact = {.attended = 1, .mass = 1};
	struct outcome told_later;
	struct sched_lane *lane;

	while ((lane = step_first(&core->steps, STEP_IN_BATCH)) != NULL) {
		complete_entry(core, lane, &exact);
		step_move(&core->steps, lane, STEP_COMPLETED);
	}
	core->now_ns = core_clock(core);
	while ((lane = step_first(&core->steps, STEP_COMPLETED)) != NULL) {
		advance_parts(core, lane, &told_later);
		count_decode(core, lane);
		lane->step.done_ns = core->now_ns;
		step_move(&core->steps, lane, STEP_FREE);
	}
}

static double share_of(double part, double all)
{
	return all > 0 ? part / all : 1;
}

static void finish(struct sched_core *core, struct sched_lane *lane)
{
	const struct step_seen *seen = &lane->step.seen;
	struct outcome outcome = {
		.attended = (float)share_of(seen->attended, seen->tokens),
		.mass = (float)share_of(seen->mass, seen->rows),
	};

	advance_parts(core, lane, &outcome);
	if (lane->step.kind == STEP_CUT)
		count_decode(core, lane);
	lane->step.done_ns = core->now_ns;
	step_move(&core->steps, lane, STEP_FREE);
	complete_entry(core, lane, &outcome);
}

/* Rows of the next part, up to this one. What was attended to exactly counts, too. */
static void count_seen(struct step *step, uint32_t row_end, const struct select_shares *chosen)
{
	const struct step_part *part = &step->parts[step->next_part];
	double n_rows = row_end - step->next_row;
	double n_tokens = n_rows * (store_seq_n_tokens(part->seq->store) + row_end);

	if (!step_may_be_sparse(part))
		return;
	step->seen.attended += n_tokens * share_of(chosen->attended, chosen->visible);
	step->seen.tokens += n_tokens;
	step->seen.mass += n_rows * share_of(chosen->kept_mass, chosen->total_mass);
	step->seen.rows += n_rows;
}

void step_finish_slice(struct sched_core *core, struct sched_lane *lane, uint32_t row_end,
		       const struct select_shares *chosen)
{
	struct step *step = &lane->step;

	count_seen(step, row_end, chosen);
	step->next_row = row_end;
	if (row_end == step->parts[step->next_part].n_new) {
		step->next_row = 0;
		step->next_part++;
	}
	if (step->next_part == step->n_parts)
		finish(core, lane);
	else if (lane->state != STEP_WAITING_TURN)
		step_move(&core->steps, lane, STEP_WAITING_TURN);
}

static void void_parts(struct sched_core *core, struct sched_lane *lane,
		       const struct outcome *outcome)
{
	for (uint32_t i = 0; i < lane->step.n_parts; i++)
		seq_void(core, lane->step.parts[i].seq, outcome);
	lane->step.n_parts = 0;
}

void step_fail(struct sched_core *core, struct sched_lane *lane, struct outcome outcome)
{
	if (lane->step.kind == STEP_TOKENS)
		outcome.value = decode_tokens_done(lane);
	void_parts(core, lane, &outcome);
	step_move(&core->steps, lane, STEP_FREE);
	complete_entry(core, lane, &outcome);
}

void step_cancel(struct sched_core *core, struct sched_lane *lane, struct outcome outcome)
{
	bool waits = lane->state == STEP_AWAITING_INPUT || lane->state == STEP_REFUSED;

	if (!waits || lane->word == ABI_LANE_WORDS) {
		step_fail(core, lane, outcome);
		return;
	}
	void_parts(core, lane, &outcome);
	lane->refusal = outcome;
	if (lane->state != STEP_REFUSED)
		step_move(&core->steps, lane, STEP_REFUSED);
}

uint32_t step_part_of(const struct sched_seq *seq)
{
	const struct sched_lane *lane = seq->lane;

	for (uint32_t i = 0; lane->state != STEP_FREE && i < lane->step.n_parts; i++)
		if (lane->step.parts[i].seq == seq)
			return i;
	return UINT32_MAX;
}
