/*
 * turns.h - whose turn it is: of the users the one who has had least of the backend's time, of his
 * sessions that which has. The scheduler's thread alone.
 *
 * Time is modelled (struct backend_cost), and counted for users and sessions while others wait. Who
 * comes back after a pause has had as much as who was served last: nobody saves time up. A batch
 * that leaves nobody behind settles debts but for what it takes, or the budget.
 */
#ifndef COPPICED_TURNS_H
#define COPPICED_TURNS_H

#include "core.h"

/* What attention is modelled to take that sees so many pairs of a row and a token, and reads so
 * many tokens. */
static inline double work_ns(const struct sched_model *model, double n_pairs, double n_tokens)
{
	return n_pairs * model->pair_ns + n_tokens * model->token_ns;
}

/* Of each node of a path, beside reading its tokens: nodes lie apart in memory, and who decides on
 * a batch and plans it goes over them three times, at 40 to 170 ns. */
#define NODE_NS 500.0

/* Of each page of a path: a plan names all of them, at 25 to 33 ns. What a page takes to be read is
 * mostly more; of a small one on a device with much memory it is not, and a pool has many. */
#define PAGE_NS 32.0

static inline double pages_ns(const struct sched_model *model, double n_tokens)
{
	return n_tokens * model->name_ns;
}

/* To plan for a path and to read it, by what it is decided who goes: what of both takes longer,
 * rather than their sum, as a plan is mostly kept. */
static inline double path_ns(const struct sched_model *model, double n_tokens, double n_nodes)
{
	double token_ns = model->token_ns > model->name_ns ? model->token_ns : model->name_ns;

	return n_tokens * token_ns + n_nodes * NODE_NS;
}

/* Of modelled time. */
static inline double budget_ns(const struct sched_core *core)
{
	return core->config->batch_budget_ms * 1e6 / core->batches.times;
}

/* Asked of every batch: without a division. */
static inline bool budget_allows(const struct sched_core *core, double ns)
{
	return ns * core->batches.times <= core->config->batch_budget_ms * 1e6;
}

/* The same for passes of programs' tokens. */
static inline double pass_budget_ns(const struct sched_core *core)
{
	return core->config->batch_budget_ms * 1e6 / core->passes.times;
}

/* What the user has had. */
static inline double user_had_ns(const struct sched_core *core, const struct sched_user *user)
{
	return user->had_ns > core->had_ns ? user->had_ns : core->had_ns;
}

static inline double session_had_ns(const struct sched_session *session)
{
	double least_ns = session->user->sessions_had_ns;

	return session->had_ns > least_ns ? session->had_ns : least_ns;
}

/* Is it a's turn before b's? Where both have had as much it is not. */
static inline bool turn_is_before(const struct sched_core *core, const struct sched_lane *a,
				  const struct sched_lane *b)
{
	double a_ns = user_had_ns(core, a->session->user);
	double b_ns = user_had_ns(core, b->session->user);

	if (a->session->user == b->session->user)
		return session_had_ns(a->session) < session_had_ns(b->session);
	return a_ns < b_ns;
}

/* Of those in a state who is first to have a turn, or the lane that is there already. */
static inline struct sched_lane *turn_first(const struct sched_core *core, enum step_state state,
					    struct sched_lane *first)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &core->steps.lanes[state], state_link)
		if (!first || turn_is_before(core, lane, first))
			first = lane;
	return first;
}

/* It is the turn of the lane, which has had least of those whose it could be: who is away has had
 * as much. */
static inline void turn_begin(struct sched_core *core, const struct sched_lane *lane)
{
	core->had_ns = user_had_ns(core, lane->session->user);
}

/* The same among the sessions of its user. */
static inline void turn_begin_session(const struct sched_lane *lane)
{
	lane->session->user->sessions_had_ns = session_had_ns(lane->session);
}

/* The lane has so much of the backend's time. */
static inline void turn_take(struct sched_core *core, struct sched_lane *lane, double ns)
{
	struct sched_session *session = lane->session;

	session->backend_ns += ns;
	session->had_ns = session_had_ns(session) + ns;
	session->user->had_ns = user_had_ns(core, session->user) + ns;
	if (session->user->had_ns > core->most_had_ns)
		core->most_had_ns = session->user->had_ns;
}

/* The lane's step goes with all that is there: nobody has had more by more than this, if somebody
 * asks later. */
static inline void turn_bound_lead(struct sched_core *core, struct sched_lane *lane, double ns)
{
	struct sched_user *user = lane->session->user;

	if (core->had_ns < core->most_had_ns - ns)
		core->had_ns = core->most_had_ns - ns;
	if (user->sessions_had_ns < lane->session->had_ns - ns)
		user->sessions_had_ns = lane->session->had_ns - ns;
}

#endif
