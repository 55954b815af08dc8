/*
 * pace.c - what is usual for a lane, learned from its decode steps.
 *
 * Two times: its lag, from a completion to its next step, one for layers within a token and one to
 * the next token's first; and its layer's, from completion to completion. Both follow what comes
 * slowly, and one sample counts for little, so that a pause is no pace. Prefill, layer by layer,
 * forgets it all: who reads a prompt so keeps nobody company. Prompts of programs go with passes as
 * any tokens.
 */
#include "pace.h"

#include "daemon/sched/core/away.h"
#include "daemon/sched/core/turns.h"

#include "proto/arith.h"

#define LAG_WEIGHT 0.25 /* of a new sample in what is usual */
#define LAG_MAX_NS 100e6 /* a longer one is a pause, not a lag */
#define LATE_LAGS 2.0 /* who is so late may stay away */
#define LATE_NS 50e3 /* and a little more: whose lag is not known yet, or is next to nothing */
#define LAG_GROWS 2.0 /* one sample counts as so many times what is usual at most */
#define LAG_DOUBT 0.125 /* of what nobody knows: how much nearer to what it is at least */
#define LAGS_KNOWN 16u /* until then one pause may be what seems usual */

/* A pause says nothing of who is not known yet. */
static void become_usual(double *usual_ns, double sample_ns)
{
	double was_ns = *usual_ns, most_ns = LAG_GROWS * was_ns;

	if (was_ns > 0) {
		sample_ns = sample_ns < most_ns ? sample_ns : most_ns;
		*usual_ns = was_ns + LAG_WEIGHT * (sample_ns - was_ns);
	} else if (sample_ns <= LAG_MAX_NS) {
		*usual_ns = sample_ns;
	}
}

/* When the lane came, after its last completion. Who came while the backend held the thread did so
 * at some time since that began: this is no lag of his. What is usual is so still, as far as it may
 * be; but not for ever, or who was slow once would be thought to be so as long as others are. */
static double sample_lag(const struct sched_core *core, uint64_t done_ns, double usual_ns)
{
	uint64_t since_ns = core->deaf_since_ns ? core->deaf_since_ns : core->now_ns;
	double least_ns = (double)(max_u64(since_ns, done_ns) - done_ns);
	double most_ns = (double)(core->now_ns - done_ns);

	if (usual_ns >= most_ns)
		return most_ns;
	return usual_ns <= least_ns ? least_ns : usual_ns - LAG_DOUBT * (usual_ns - least_ns);
}

static void learn_lag(const struct sched_core *core, struct pace *pace, bool first)
{
	double *usual_ns = &pace->lag_ns[first];

	if (!pace->done_ns)
		return;
	become_usual(usual_ns, sample_lag(core, pace->done_ns, *usual_ns));
	pace->n_lags++;
}

/* Whoever has opened a sequence since is there. */
static void tokens_arrived(struct sched_lane *lane)
{
	lane->decode.newcomer = lane->opened == lane->step.model;
	lane->opened = NULL;
	lane->session->user->opened_ns = 0;
	lane->pace.n_layers = 1;
}

void pace_end_wait(struct sched_core *core, struct sched_lane *lane)
{
	struct pace *pace = &lane->pace;
	struct sched_user *user = lane->session->user;
	uint64_t now_ns = core->deaf_since_ns ? core->deaf_since_ns : core->now_ns;
	uint64_t end_ns = min_u64(now_ns, pace->awaited_until_ns);
	uint64_t since_ns = max_u64(pace->awaited_ns, user->waited_ns);

	if (pace->awaited_ns && since_ns < end_ns) {
		turn_take(core, lane, (double)(end_ns - since_ns));
		user->waited_ns = end_ns;
		core->stats.turn_waits++;
		core->stats.turn_wait_ns += end_ns - since_ns;
	}
	pace->awaited_ns = 0;
}

void pace_arrived(struct sched_core *core, struct sched_lane *lane)
{
	struct pace *pace = &lane->pace;
	const struct step *step = &lane->step;

	away_end(core, lane);
	pace_end_wait(core, lane);
	if (step->kind != STEP_DECODE && step->kind != STEP_TOKENS) {
		*pace = (struct pace){0};
		return;
	}
	learn_lag(core, pace, step->layer == 0);
	pace->model = step->model;
	pace->seq = step->parts[0].seq;
	pace->n_layers = step->model->shape.n_layers;
	pace->next_layer = step->layer;
	pace->held_until_ns = 0;
	if (step->kind == STEP_TOKENS)
		tokens_arrived(lane);
}

uint32_t pace_met(struct sched_lane *const *lanes, uint32_t n_lanes, uint64_t job)
{
	uint32_t n_sessions = 0;

	for (uint32_t i = 0; i < n_lanes; i++) {
		struct sched_session *session = lanes[i]->session;

		lanes[i]->pace.n_met = n_lanes;
		n_sessions += session->last_job != job;
		session->last_job = job;
	}
	return n_sessions;
}

void pace_finished(const struct sched_core *core, struct sched_lane *lane)
{
	struct pace *pace = &lane->pace;

	if (pace->done_ns && lane->step.layer != 0)
		become_usual(&pace->layer_ns, (double)(core->now_ns - pace->done_ns));
	pace->done_ns = core->now_ns;
	pace->next_layer = (lane->step.layer + 1) % pace->n_layers;
}

uint64_t pace_usual_ns(const struct sched_lane *lane)
{
	return lane->pace.done_ns + (uint64_t)lane->pace.lag_ns[lane->pace.next_layer == 0];
}

void pace_opened(const struct sched_core *core, const struct sched_seq *seq)
{
	struct sched_user *user = seq->session->user;

	if (user->opened_ns == 0)
		user->opened_ns = core->now_ns;
	seq->lane->opened = seq->model;
	seq->lane->opened_ns = core->now_ns;
}

uint64_t pace_latest_ns(const struct sched_lane *lane)
{
	const struct pace *pace = &lane->pace;
	double lag_ns = pace->lag_ns[pace->next_layer == 0];

	return pace->done_ns ? pace->done_ns + (uint64_t)(LATE_LAGS * lag_ns + LATE_NS) : 0;
}

bool pace_is_known(const struct sched_lane *lane)
{
	return lane->pace.n_lags >= LAGS_KNOWN;
}

void pace_forget(struct sched_core *core, const struct sched_seq *seq)
{
	seq->lane->opened = NULL;
	if (seq->lane->pace.seq == seq) {
		away_end(core, seq->lane);
		pace_end_wait(core, seq->lane);
		seq->lane->pace = (struct pace){0};
	}
	core->steps.changed = true;
}
