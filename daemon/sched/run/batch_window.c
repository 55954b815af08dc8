/*
 * batch_window.c - whom to wait for, and until when.
 *
 * All runnable steps of one model and layer are a group: it runs whole, or is held whole. It waits
 * for a lane that shares KV with one of it, that is expected in time by its pace, and for whom it
 * is better to wait than the other way round; of several, for the last of these. Looked at anew
 * whenever a step has changed its state, and when a wait is over. Lanes are gone through oldest
 * first, so that a group's order, by which plans are kept, stays.
 */
#include "batch_window.h"

#include "daemon/sched/step/step_end.h"

#include <errno.h>
#include <math.h>

#define PACE_FACTOR 4.0 /* a lane with so many times another's lag keeps it no company */
/* Who is so late may be left behind, as to wait for it at the next layer costs as much. */
#define LATE_LAYERS 3.0
/* Where waits cost nothing, in parts of the longest: how much lags may differ, and how late one may
 * be. */
#define PACE_PART 0.1
#define PATIENCE_PART 0.75
#define LASTING_TOKENS 16.0 /* that company found is reckoned to last */
/* Of a group that are asked whom to wait for: looking must stay cheap in a crowd. */
#define MEMBERS_MAX 8
#define FAR_NODES 128u /* of two paths that are looked at for what these have in common */

/* Runnable decode steps of one model and layer. */
struct group {
	const struct sched_model *model;
	uint32_t layer;
	uint64_t first_ns; /* arrival of the first */
	uint64_t deadline_ns;
	double lag_ns, least_lag_ns; /* the longest and the shortest usual lag among them */
	uint64_t due_ns; /* until when it was to wait; 0: it has not */
	uint64_t eldest; /* least serial */
	uint32_t n_lanes;
	/* some of them: whom they know, the others know */
	const struct sched_lane *members[MEMBERS_MAX];
	uint32_t n_members;
};

static bool in_group(const struct sched_lane *lane, const struct group *g)
{
	return lane->state == STEP_RUNNABLE && lane->step.model == g->model &&
	       lane->step.layer == g->layer;
}

/* Tokens that two sequences read in common; 0 where their paths part so far up that it would take
 * long to find out. */
static uint32_t shared_tokens(const struct sched_seq *a, const struct sched_seq *b)
{
	struct store_node *x = store_seq_node(a->store), *y = store_seq_node(b->store);

	for (uint32_t i = 0; x != y; i++) {
		if (i == FAR_NODES)
			return 0;
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
	return store_node_pos(x) + store_node_n_tokens(x);
}

/* What b's company in one layer saves a: KV read once instead of twice, one batch instead of
 * two. */
static double saving_ns(const struct sched_lane *a, const struct sched_lane *b)
{
	const struct sched_model *m = a->step.model;

	uint32_t n_tokens = shared_tokens(a->pace.seq, b->pace.seq);

	if (n_tokens == 0)
		return 0;
	return m->cost.fixed_ns + (double)n_tokens * 2 * m->shape.n_kv_heads * m->shape.head_dim *
					  (double)work_dtype_bytes(m->shape.dtype) *
					  m->cost.kv_ns_per_byte;
}

/* Layers that b has to go before it is at the group's. */
static uint32_t layers_behind(const struct sched_lane *b, const struct group *g)
{
	const struct pace *l = &b->pace;

	return (g->layer + l->n_layers - l->next_layer) % l->n_layers;
}

/* When b's step of the group's layer may be expected. */
static double expected_ns(const struct sched_core *core, const struct sched_lane *b,
			  const struct group *g)
{
	const struct pace *l = &b->pace;
	double way_ns = l->layer_ns * layers_behind(b, g);

	if (step_is_there(b))
		return (double)core->now_ns + way_ns;
	return (double)l->done_ns + l->lag_ns[g->layer == 0] + way_ns;
}

/* Of the two ways to meet, b's to the group's layer and the group's to b's, the one for which fewer
 * wait for less. */
static bool is_for_us_to_wait(const struct sched_lane *b, const struct group *g)
{
	const struct pace *l = &b->pace;
	uint64_t behind = layers_behind(b, g), ahead = l->n_layers - behind;
	uint64_t ours = behind * g->n_lanes, theirs = ahead * (l->n_met ? l->n_met : 1);

	return ours != theirs ? ours < theirs : b->serial < g->eldest;
}

/* b needs much longer than all of them from a completion to the next step, or they than b: who is
 * slow would set the pace of who is not. */
static bool differs_in_pace(const struct sched_lane *b, const struct group *g, double slack_ns)
{
	double lag_ns = b->pace.lag_ns[0];

	return lag_ns > PACE_FACTOR * g->lag_ns + slack_ns ||
	       g->least_lag_ns > PACE_FACTOR * lag_ns + slack_ns;
}

/* What company with b saves one of the group in a layer. */
static double group_saving_ns(const struct sched_lane *b, const struct group *g)
{
	double saving = 0;

	for (uint32_t i = 0; i < g->n_members && saving <= 0; i++)
		saving = saving_ns(g->members[i], b);
	return saving;
}

static double longest_wait_ns(const struct group *g)
{
	return (double)(g->deadline_ns - g->first_ns);
}

static double pace_slack_ns(const struct sched_core *core, const struct group *g)
{
	return core->config->batch_window == CONFIG_WINDOW_ALWAYS ? PACE_PART * longest_wait_ns(g)
								  : g->model->cost.fixed_ns;
}

/* How late b may be before it is known to stay away. */
static double patience_ns(const struct sched_core *core, const struct sched_lane *b,
			  const struct group *g)
{
	if (core->config->batch_window == CONFIG_WINDOW_ALWAYS)
		return PATIENCE_PART * longest_wait_ns(g);
	return LATE_LAYERS * b->pace.layer_ns + g->model->cost.fixed_ns;
}

/* b will be there in time if it keeps to what is usual for it; late_ns: when it has not. */
static bool is_on_its_way(const struct sched_core *core, const struct sched_lane *b,
			  const struct group *g, double *ret_expected_ns, double *ret_late_ns)
{
	double slack = pace_slack_ns(core, g), expected = expected_ns(core, b, g);
	double late = expected + patience_ns(core, b, g);

	if (!is_for_us_to_wait(b, g) || differs_in_pace(b, g, slack))
		return false;
	if (late < (double)g->first_ns) /* it had stayed away before the group came */
		return false;
	/* Who has a way to go comes closer by one wait a token. */
	if (expected > (double)g->deadline_ns && (g->layer != 0 || layers_behind(b, g) == 0))
		return false;
	*ret_expected_ns = expected;
	*ret_late_ns = late;
	return true;
}

/* Those that are at work, or that are there for another layer and do not wait themselves. */
static bool can_come(const struct sched_lane *b, const struct group *g)
{
	return b->pace.model == g->model && b->pace.seq && !b->broken && !in_group(b, g) &&
	       b->state != STEP_HELD;
}

/* Until when the group should wait for b at most; 0: not at all. */
static double wait_for_until_ns(const struct sched_core *core, const struct sched_lane *b,
				const struct group *g)
{
	double expected, late, saving, worth;

	if (!is_on_its_way(core, b, g, &expected, &late))
		return 0;
	saving = group_saving_ns(b, g);
	if (saving <= 0)
		return 0;
	if (core->config->batch_window == CONFIG_WINDOW_ALWAYS)
		return (double)g->deadline_ns;
	worth = (double)g->first_ns + saving * g->model->shape.n_layers * LASTING_TOKENS;
	return expected < worth ? fmin(late, worth) : 0;
}

static struct group group_of(const struct sched_core *core, const struct sched_lane *lane)
{
	struct group g = {.model = lane->step.model,
			  .layer = lane->step.layer,
			  .first_ns = UINT64_MAX,
			  .eldest = UINT64_MAX,
			  .least_lag_ns = INFINITY};
	const struct sched_lane *a;

	TAILQ_FOREACH (a, &core->lanes, link) {
		if (!in_group(a, &g))
			continue;
		if (g.n_members < MEMBERS_MAX)
			g.members[g.n_members++] = a;
		g.n_lanes++;
		if (a->serial < g.eldest)
			g.eldest = a->serial;
		if (a->step.arrival_ns < g.first_ns)
			g.first_ns = a->step.arrival_ns;
		if (a->pace.lag_ns[0] > g.lag_ns)
			g.lag_ns = a->pace.lag_ns[0];
		if (a->pace.lag_ns[0] < g.least_lag_ns)
			g.least_lag_ns = a->pace.lag_ns[0];
		if (a->pace.held_until_ns > g.due_ns)
			g.due_ns = a->pace.held_until_ns;
	}
	g.deadline_ns = g.first_ns + core->config->batch_window_max_us * UINT64_C(1000);
	return g;
}

/* Until when the group waits, its deadline at most; what is not in the future means that it
 * runs. */
static uint64_t group_until_ns(const struct sched_core *core, const struct group *g)
{
	const struct sched_lane *b;
	double until = 0;

	if (core->config->batch_window == CONFIG_WINDOW_NEVER)
		return 0;
	TAILQ_FOREACH (b, &core->lanes, link) {
		if (until >= (double)g->deadline_ns)
			break;
		if (can_come(b, g))
			until = fmax(until, wait_for_until_ns(core, b, g));
	}
	return until < (double)g->deadline_ns ? (uint64_t)until : g->deadline_ns;
}

static void count_wait(struct sched_core *core, const struct group *g)
{
	bool lost = core->now_ns >= g->due_ns;

	if (!g->due_ns)
		return;
	core->stats.window_ns += core->now_ns - g->first_ns;
	core->stats.windows_won += !lost;
	core->stats.windows_lost += lost;
}

static void group_run(struct window *w, const struct group *g)
{
	struct sched_core *core = w->core;
	struct sched_lane *a;

	count_wait(core, g);
	TAILQ_FOREACH (a, &core->lanes, link) {
		if (!in_group(a, g))
			continue;
		a->pace.held_until_ns = 0;
		if (batch_add(w->batch, a) < 0)
			step_fail(core, a, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	}
}

static void group_hold(struct window *w, const struct group *g, uint64_t until_ns)
{
	struct sched_lane *a;

	TAILQ_FOREACH (a, &w->core->lanes, link) {
		if (!in_group(a, g))
			continue;
		a->pace.held_until_ns = until_ns;
		step_move(&w->core->steps, a, STEP_HELD);
	}
	if (until_ns < w->until_ns)
		w->until_ns = until_ns;
}

void window_init(struct window *w, struct sched_core *core, struct batch *batch)
{
	*w = (struct window){.core = core, .batch = batch, .until_ns = UINT64_MAX};
}

void window_choose(struct window *w)
{
	struct sched_core *core = w->core;
	struct sched_lane *lane;

	w->until_ns = UINT64_MAX;
	while ((lane = step_first(&core->steps, STEP_HELD)) != NULL)
		step_move(&core->steps, lane, STEP_RUNNABLE);
	TAILQ_FOREACH (lane, &core->lanes, link) {
		if (lane->state != STEP_RUNNABLE)
			continue;
		struct group g = group_of(core, lane);
		uint64_t until_ns = group_until_ns(core, &g);

		if (until_ns > core->now_ns)
			group_hold(w, &g, until_ns);
		else
			group_run(w, &g);
	}
	core->steps.changed = false;
}
