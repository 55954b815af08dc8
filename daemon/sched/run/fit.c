/*
 * fit.c - the turns of those whose steps do not fit one batch.
 *
 *      each session's steps, one after the other      s0: 0---4---8   s1: 2---6
 *      merged, for each user                          u:  s0 s1 s0 s1
 *      users', one after the other as well            u: 10--13--16   v: 11----19
 *      merged                                         u v u
 *
 * Steps stand where their session, then their user, will have had so much time. Users share no KV,
 * so that what a step adds to those of its user before it is what it adds to the batch. Nobody goes
 * beyond where a session or a user who is there has run out of steps.
 */
#include "fit.h"

#include "daemon/base/grow.h"
#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/step/step_end.h"
#include "job_tree.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ---- in the order of sessions --------------------------------------------------------------- */

/* What the session will have had before the next of its steps. */
static double *session_line(const struct fit *f, struct sched_session *session)
{
	struct sched_user *user = session->user;

	if (user->fit != f->number) {
		user->fit = f->number;
		user->fit_ns = user_had_ns(f->batch->core, user);
		user->fit_end_ns = INFINITY;
	}
	if (session->fit != f->number) {
		session->fit = f->number;
		session->fit_ns = session_had_ns(session);
	}
	return &session->fit_ns;
}

static int collect(struct fit *f)
{
	f->n = 0;
	f->number++;
	for (uint32_t i = 0; i < f->batch->n_jobs; i++) {
		struct batch_job *job = &f->batch->jobs[i];

		if (GROW(f->candidates, f->room, f->n + job->n_lanes) < 0)
			return -ENOMEM;
		for (uint32_t j = 0; j < job->n_lanes; j++) {
			struct sched_lane *lane = job->lanes[j];
			double *line_ns = session_line(f, lane->session);

			f->candidates[f->n] = (struct candidate){.lane = lane,
								 .job = job,
								 .place = f->n,
								 .session_ns = *line_ns};
			f->n++;
			*line_ns += lane->step.alone_ns;
		}
	}
	return 0;
}

static void find_session_ends(const struct fit *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		const struct sched_session *session = f->candidates[i].lane->session;

		session->user->fit_end_ns = fmin(session->user->fit_end_ns, session->fit_ns);
	}
}

static int compare(double a, double b, const struct candidate *x, const struct candidate *y)
{
	if (a != b)
		return a < b ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;
}

static int by_session(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return compare(x->session_ns, y->session_ns, x, y);
}

static int by_user(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return compare(x->user_ns, y->user_ns, x, y);
}

static int by_place(const void *a, const void *b)
{
	return compare(0, 0, a, b);
}

static void sort(struct fit *f, int (*order)(const void *a, const void *b))
{
	qsort(f->candidates, f->n, sizeof(*f->candidates), order);
}

/* ---- what each adds ------------------------------------------------------------------------- */

/* As in a slice: also for as much arithmetic as reading its longest path takes. */
static double room_for(const struct sched_core *core, const struct candidate *c)
{
	return fmax(budget_ns(core), 2 * c->longest_ns);
}

/* To those of its job that were asked before. What is seen not to fit by itself is cut: of its
 * other paths, which may have very many nodes, none is walked. */
static void weigh_candidate(const struct sched_core *core, struct candidate *c)
{
	const struct step *step = &c->lane->step;

	c->ns = step->pairs_ns + (c->job->weighed ? 0 : step->model->cost.fixed_ns);
	c->job->weighed = true;
	for (uint32_t i = 0; i < step->n_parts; i++) {
		double ns = part_path_ns(c->job->paths, step->model, &step->parts[i]);

		c->ns += ns;
		c->longest_ns = fmax(c->longest_ns, ns);
		if (c->ns > room_for(core, c) && i + 1 < step->n_parts) {
			c->ns = step->alone_ns;
			return;
		}
	}
}

static void begin_jobs(struct fit *f)
{
	struct batch *b = f->batch;

	for (uint32_t i = 0; i < b->n_jobs; i++) {
		b->jobs[i].paths = paths_begin(&b->plans);
		b->jobs[i].weighed = false;
		b->jobs[i].lanes[0]->step.model->fit = f->number;
		b->jobs[i].lanes[0]->step.model->fit_paths = b->jobs[i].paths;
	}
}

/* Does more than one user ask? */
static bool is_contested(const struct fit *f)
{
	const struct sched_user *user = f->candidates[0].lane->session->user;
	const struct sched_lane *lane;

	for (uint32_t i = 1; i < f->n; i++) {
		if (f->candidates[i].lane->session->user != user)
			return true;
	}
	TAILQ_FOREACH (lane, &f->batch->core->lanes, link) {
		if (lane->is_away && lane->session->user != user)
			return true;
	}
	return false;
}

/* As if they came to a job of their model that is there, at whatever layer they are: less than they
 * will read, rather than more. */
static uint64_t away_paths(struct fit *f, struct sched_model *model)
{
	if (model->fit != f->number) {
		model->fit = f->number;
		model->fit_paths = paths_begin(&f->batch->plans);
	}
	return model->fit_paths;
}

/* A pass goes with no batch: all of it comes on top, the weights once for all of a model. */
static double away_pass_ns(struct fit *f, const struct sched_lane *lane)
{
	struct sched_model *model = lane->pace.seq->model;
	bool first = model->fit != f->number;

	model->fit = f->number;
	return (double)lane->away_alone_ns + (first ? model->program->cost.fixed_ns : 0);
}

/* With what those who are away add to those who are there; beyond the budget nobody asks. */
static double with_away_ns(struct fit *f, double ns)
{
	double most_ns = budget_ns(f->batch->core);
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &f->batch->core->lanes, link) {
		if (!lane->is_away)
			continue;
		struct sched_model *model = lane->pace.seq->model;

		if (ns > most_ns)
			break;
		if (model->program) {
			ns += away_pass_ns(f, lane);
			continue;
		}
		struct path_added added = paths_add(away_paths(f, model), lane->pace.seq);

		ns += lane->away_pairs_ns + path_ns(model, added.n_tokens, added.n_nodes);
	}
	return ns;
}

/* Returns what all of them take. Who has more than a batch's time before a step of his does not
 * have it in this batch: it is not looked at, as that may take long too. */
static double weigh(struct fit *f)
{
	const struct sched_core *core = f->batch->core;
	double sum_ns = 0, most_ns = budget_ns(core);

	begin_jobs(f);
	for (uint32_t i = 0; i < f->n; i++) {
		struct candidate *c = &f->candidates[i];
		struct sched_user *user = c->lane->session->user;

		c->ns = c->lane->step.alone_ns;
		c->user_ns = INFINITY;
		if (user->fit_ns - user_had_ns(core, user) <= most_ns) {
			weigh_candidate(core, c);
			most_ns = fmax(most_ns, room_for(core, c));
			if (c->session_ns <= user->fit_end_ns) {
				c->user_ns = user->fit_ns;
				user->fit_ns += c->ns;
			}
		}
		sum_ns += c->ns;
	}
	return sum_ns;
}

/* ---- in the order of users ------------------------------------------------------------------ */

static double find_user_end(const struct fit *f)
{
	double end_ns = INFINITY;

	for (uint32_t i = 0; i < f->n; i++)
		end_ns = fmin(end_ns, f->candidates[i].lane->session->user->fit_ns);
	return end_ns;
}

static void cut(struct sched_core *core, struct sched_lane *lane)
{
	lane->step.kind = STEP_CUT;
	step_move(&core->steps, lane, STEP_WAITING_TURN);
	core->stats.steps_cut++;
}

/* Whose turns there is time for. */
static void choose(struct fit *f)
{
	struct sched_core *core = f->batch->core;
	double end_ns = find_user_end(f), left_ns;

	turn_begin(core, f->candidates[0].lane);
	left_ns = room_for(core, &f->candidates[0]);
	if (f->candidates[0].ns > left_ns)
		cut(core, f->candidates[0].lane);
	for (uint32_t i = 0; i < f->n; i++) {
		struct candidate *c = &f->candidates[i];

		if (c->user_ns > end_ns || c->ns > left_ns)
			return;
		if (c->user_ns == user_had_ns(core, c->lane->session->user))
			turn_begin_session(c->lane);
		c->goes = true;
		left_ns -= c->ns;
	}
}

static void put_back(struct fit *f)
{
	for (uint32_t i = 0; i < f->n; i++) {
		struct candidate *c = &f->candidates[i];

		if (c->goes && batch_add(f->batch, c->lane) < 0)
			step_fail(f->batch->core, c->lane, outcome_bad(-ENOMEM, ABI_NO_MEMORY, 0));
	}
}

/* Without memory to find out all go. */
void fit_batch(struct fit *f)
{
	double sum_ns;

	if (collect(f) < 0)
		return;
	find_session_ends(f);
	sort(f, by_session);
	sum_ns = weigh(f);
	if (is_contested(f))
		sum_ns = with_away_ns(f, sum_ns);
	f->left_some = sum_ns > budget_ns(f->batch->core);
	if (!f->left_some)
		return;
	batch_empty(f->batch);
	sort(f, by_user);
	choose(f);
	sort(f, by_place);
	put_back(f);
}

void fit_done(struct fit *f)
{
	free(f->candidates);
}
