/* hold.c - see hold.h. */
#include "hold.h"

#include "batch.h"
#include "complete.h"
#include "step.h"

#include <errno.h>
#include <math.h>

#define LAG_WEIGHT 0.25 /* of a new sample in what is usual */
#define LAG_MAX_NS 100e6 /* a longer one is a pause, not a lag */
#define SLOW_FACTOR 4.0 /* a lane with so many times the others' lag is not waited for */
#define SLOW_SLACK_NS 200e3
#define BOARD_TOKENS 16.0 /* that company found is reckoned to last */
#define MEMBERS_MAX \
	8 /* of a group that are asked whom to wait for: looking must stay cheap in a crowd */

/* Parked decode steps of one model and layer. */
struct group {
	const struct sched_model *model;
	uint32_t layer;
	uint64_t first_ns; /* arrival of the first */
	uint64_t deadline_ns;
	double lag_ns; /* the longest usual lag among them */
	uint64_t due_ns; /* until when it was to wait; 0: it has not */
	const struct sched_lane
		*members[MEMBERS_MAX]; /* some of them: whom they know, the others know */
	uint32_t n_members;
};

static bool in_group(const struct sched_lane *lane, const struct group *g)
{
	return lane->parked && !lane->awaited && !lane->step.prefill &&
	       lane->step.model == g->model && lane->step.layer == g->layer;
}

/* Tokens that two sequences read in common. */
static uint32_t shared_tokens(const struct sched_seq *a, const struct sched_seq *b)
{
	struct store_node *x = store_seq_node(a->store), *y = store_seq_node(b->store);

	while (x && y && x != y) {
		if (store_node_pos(x) + store_node_n_tokens(x) >=
			    store_node_pos(y) + store_node_n_tokens(y) &&
		    store_node_parent(x))
			x = store_node_parent(x);
		else if (store_node_parent(y))
			y = store_node_parent(y);
		else if (store_node_parent(x))
			x = store_node_parent(x);
		else
			return 0;
	}
	return x ? store_node_pos(x) + store_node_n_tokens(x) : 0;
}

/* What b's company in one layer saves a: KV read once instead of twice, one batch instead of two. */
static double saving_ns(const struct sched_lane *a, const struct sched_lane *b)
{
	const struct sched_model *m = a->step.model;

	uint32_t n_tokens = shared_tokens(a->lockstep.seq, b->lockstep.seq);

	if (n_tokens == 0)
		return 0;
	return m->cost.fixed_ns + (double)n_tokens * 2 * m->shape.n_kv_heads * m->shape.head_dim *
					  (double)work_dtype_bytes(m->shape.dtype) *
					  m->cost.kv_ns_per_byte;
}

/* When b's step of this layer may be expected: its last one, what layers on the way usually take, its usual lag. */
static double expected_ns(const struct sched_lane *b, const struct group *g)
{
	const struct lockstep *l = &b->lockstep;
	uint32_t layers = (g->layer + l->n_layers - l->next_layer) % l->n_layers;

	return (double)l->done_ns + l->layer_ns * layers + l->lag_ns[g->layer == 0];
}

/* b is in a's cohort and its next step is this one; or a new token begins and b's larger cohort will begin one too. */
static bool is_companion(const struct sched_lane *a, const struct sched_lane *b,
			 const struct group *g)
{
	const struct lockstep *x = &a->lockstep, *y = &b->lockstep;

	if (y->cohort && y->cohort == x->cohort)
		return (!b->parked || b->awaited) && y->next_layer == g->layer;
	if (g->layer != 0 || !y->cohort)
		return false;
	if (!x->cohort || y->cohort_lanes != x->cohort_lanes)
		return y->cohort_lanes > x->cohort_lanes;
	return y->cohort_eldest < x->cohort_eldest;
}

/* Until when a should wait for b at most; 0: not at all. Who is late may be as late again. Whom a would board with but
 * cannot reach in one wait comes closer by a wait a token. */
static double worth_waiting_until_ns(const struct sched *s, const struct sched_lane *a,
				     const struct sched_lane *b, const struct group *g)
{
	double expected = expected_ns(b, g);
	double saving = saving_ns(a, b);
	bool boards = a->lockstep.cohort != b->lockstep.cohort;

	if (saving <= 0 || (expected > (double)g->deadline_ns && !boards))
		return 0;
	if (b->lockstep.lag_ns[0] > SLOW_FACTOR * g->lag_ns + SLOW_SLACK_NS)
		return 0;
	if (s->config->batch_hold == CONFIG_HOLD_ALWAYS)
		return (double)g->deadline_ns;
	if (boards)
		saving *= g->model->shape.n_layers * BOARD_TOKENS;
	return expected - (double)s->now_ns < saving ? expected + saving : 0;
}

static bool can_come(const struct sched_lane *b, const struct group *g)
{
	return b->lockstep.model == g->model && b->lockstep.seq && !b->broken && !in_group(b, g);
}

/* Until when the group should wait for b. */
static double wait_for_until_ns(const struct sched *s, const struct sched_lane *b,
				const struct group *g)
{
	double until = 0;

	for (uint32_t i = 0; i < g->n_members; i++) {
		if (is_companion(g->members[i], b, g))
			until = fmax(until, worth_waiting_until_ns(s, g->members[i], b, g));
	}
	return until;
}

static struct group group_of(const struct sched *s, const struct sched_lane *lane)
{
	struct group g = {.model = lane->step.model,
			  .layer = lane->step.layer,
			  .first_ns = UINT64_MAX};
	const struct sched_lane *a;

	TAILQ_FOREACH (a, &s->lanes, link) {
		if (!in_group(a, &g))
			continue;
		if (g.n_members < MEMBERS_MAX)
			g.members[g.n_members++] = a;
		if (a->step.arrival_ns < g.first_ns)
			g.first_ns = a->step.arrival_ns;
		if (a->lockstep.lag_ns[0] > g.lag_ns)
			g.lag_ns = a->lockstep.lag_ns[0];
		if (a->lockstep.held_until_ns > g.due_ns)
			g.due_ns = a->lockstep.held_until_ns;
	}
	g.deadline_ns = g.first_ns + s->config->batch_wait_max_us * UINT64_C(1000);
	return g;
}

/* Until when the group waits, its deadline at most; what is not in the future means that it runs. */
static uint64_t group_until_ns(const struct sched *s, const struct group *g)
{
	const struct sched_lane *b;
	double until = 0;

	if (s->config->batch_hold == CONFIG_HOLD_NEVER)
		return 0;
	TAILQ_FOREACH (b, &s->lanes, link) {
		if (can_come(b, g))
			until = fmax(until, wait_for_until_ns(s, b, g));
	}
	return until < (double)g->deadline_ns ? (uint64_t)until : g->deadline_ns;
}

/* Nobody waits again for whom this group has waited in vain, until they meet. */
static void forget_who_stayed_away(struct sched *s, const struct group *g)
{
	struct sched_lane *b;

	TAILQ_FOREACH (b, &s->lanes, link) {
		bool awaited = false;

		for (uint32_t i = 0; can_come(b, g) && i < g->n_members; i++)
			awaited |= is_companion(g->members[i], b, g) &&
				   expected_ns(b, g) <= (double)g->deadline_ns;
		if (awaited)
			b->lockstep.cohort = b->lockstep.cohort_lanes = 0;
	}
}

static void count_hold(struct sched *s, const struct group *g)
{
	bool lost = s->now_ns >= g->due_ns;

	if (!g->due_ns)
		return;
	if (lost)
		forget_who_stayed_away(s, g);
	s->stats.hold_ns += s->now_ns - g->first_ns;
	s->stats.holds_won += !lost;
	s->stats.holds_lost += lost;
}

static void group_run(struct sched *s, const struct group *g)
{
	struct sched_lane *a, *next;

	count_hold(s, g);
	for (a = TAILQ_FIRST(&s->lanes); a; a = next) {
		next = TAILQ_NEXT(a, link);
		if (!in_group(a, g) || a->lockstep.chosen)
			continue;
		a->lockstep.chosen = true;
		a->lockstep.held_until_ns = 0;
		if (batch_add(s, a) < 0)
			step_fail(s, a, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	}
}

static void group_hold(struct sched *s, const struct group *g, uint64_t until_ns)
{
	struct sched_lane *a;

	TAILQ_FOREACH (a, &s->lanes, link) {
		if (!in_group(a, g))
			continue;
		a->lockstep.chosen = true;
		a->lockstep.held_until_ns = until_ns;
	}
	if (until_ns < s->hold_until_ns)
		s->hold_until_ns = until_ns;
}

void hold_choose(struct sched *s)
{
	struct sched_lane *lane, *next;

	s->hold_stale = false;
	s->hold_until_ns = UINT64_MAX;
	TAILQ_FOREACH (lane, &s->lanes, link)
		lane->lockstep.chosen = false;
	for (lane = TAILQ_FIRST(&s->lanes); lane; lane = next) {
		next = TAILQ_NEXT(lane, link);
		if (!lane->parked || lane->awaited || lane->step.prefill || lane->lockstep.chosen)
			continue;
		struct group g = group_of(s, lane);
		uint64_t until_ns = group_until_ns(s, &g);

		if (until_ns > s->now_ns)
			group_hold(s, &g, until_ns);
		else
			group_run(s, &g);
	}
}

static void become_usual(double *usual_ns, double sample_ns)
{
	sample_ns = sample_ns < LAG_MAX_NS ? sample_ns : LAG_MAX_NS;
	*usual_ns = *usual_ns > 0 ? *usual_ns + LAG_WEIGHT * (sample_ns - *usual_ns) : sample_ns;
}

void hold_arrived(struct sched *s, struct sched_lane *lane)
{
	struct lockstep *l = &lane->lockstep;

	s->hold_stale = true;
	if (lane->step.prefill) {
		*l = (struct lockstep){0};
		return;
	}
	if (l->done_ns)
		become_usual(&l->lag_ns[lane->step.layer == 0], (double)(s->now_ns - l->done_ns));
	l->model = lane->step.model;
	l->seq = lane->step.parts[0].seq;
	l->n_layers = lane->step.model->shape.n_layers;
	l->next_layer = lane->step.layer;
}

/* Who had met these before and is not among them has stayed away. */
static void leave_behind(struct sched *s, uint64_t cohort)
{
	struct sched_lane *b;

	TAILQ_FOREACH (b, &s->lanes, link) {
		if (cohort && b->lockstep.cohort == cohort)
			b->lockstep.cohort = b->lockstep.cohort_lanes = 0;
	}
}

uint32_t hold_met(struct sched *s, const struct batch_job *job)
{
	uint64_t eldest = UINT64_MAX;
	uint32_t n_sessions = 0;

	s->next_cohort++;
	for (uint32_t i = 0; i < s->batch.n_lanes; i++) {
		struct sched_lane *lane = s->batch.lanes[i];

		if (lane->step.model != job->model || lane->step.layer != job->layer)
			continue;
		lane->lockstep.cohort_before = lane->lockstep.cohort;
		lane->lockstep.cohort = s->next_cohort;
		lane->lockstep.cohort_lanes = job->n_lanes;
		if (lane->serial < eldest)
			eldest = lane->serial;
		n_sessions += lane->session->cohort != s->next_cohort;
		lane->session->cohort = s->next_cohort;
	}
	for (uint32_t i = 0; i < s->batch.n_lanes; i++) {
		struct lockstep *l = &s->batch.lanes[i]->lockstep;

		if (l->cohort != s->next_cohort)
			continue;
		l->cohort_eldest = eldest;
		leave_behind(s, l->cohort_before);
	}
	return n_sessions;
}

void hold_finished(struct sched *s, struct sched_lane *lane)
{
	struct lockstep *l = &lane->lockstep;

	if (lane->step.prefill)
		return;
	if (l->done_ns && lane->step.layer != 0)
		become_usual(&l->layer_ns, (double)(s->now_ns - l->done_ns));
	l->done_ns = s->now_ns;
	l->next_layer = (lane->step.layer + 1) % l->n_layers;
}

void hold_forget(struct sched *s, const struct sched_seq *seq)
{
	if (seq->lane->lockstep.seq == seq)
		seq->lane->lockstep = (struct lockstep){0};
	s->hold_stale = true;
}
