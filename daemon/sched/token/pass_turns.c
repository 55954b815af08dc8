/*
 * pass_turns.c - several programs' passes under way, in turns of users.
 *
 *      now   A1 A2 A3 |  B1 B2  | A4 A5 ...      B's user has had less, until B3
 *      aside          |  A      | B
 *
 * A pass has lanes of one program, and its rows stay there between segments. So another program's
 * pass can come between two: nobody waits for all of another user's. Who is in one, or has had as
 * much, does not cut in: what he wants comes behind it. Where there are as many passes as there may
 * be, who would cut in waits for the one that ends first: all others wait for that, too.
 */
#include "pass_turns.h"

#include "daemon/sched/core/turns.h"

static void swap(struct pass *a, struct pass *b)
{
	struct pass was = *a;

	*a = *b;
	*b = was;
}

static bool is_under_way(const struct passes *p, const struct sched_model *model)
{
	for (uint32_t i = 0; i < p->n_aside; i++)
		if (p->aside[i].job.model == model)
			return true;
	return p->now.job.model == model;
}

/* He cuts in, unless there are as many passes as there may be. */
static struct sched_lane *who_is_first(const struct passes *p)
{
	const struct step_queues *steps = &p->core->steps;
	const struct sched_lane *in = turn_first(p->core, STEP_IN_PASS, NULL);
	struct sched_lane *lane, *first = NULL;

	if (!in)
		return NULL;
	TAILQ_FOREACH (lane, &steps->lanes[STEP_AWAITING_PASS], state_link)
		if (lane->session->user != in->session->user &&
		    turn_is_before(p->core, lane, first ? first : in) &&
		    !is_under_way(p, lane->step.model))
			first = lane;
	return first;
}

struct sched_lane *pass_who_cuts_in(const struct passes *p)
{
	return p->n_aside < PASSES_ASIDE ? who_is_first(p) : NULL;
}

void pass_put_aside(struct passes *p)
{
	swap(&p->now, &p->aside[p->n_aside++]);
	p->gets_ready = false;
}

void pass_take_back(struct passes *p)
{
	if (p->n_aside == 0)
		return;
	swap(&p->now, &p->aside[--p->n_aside]);
	p->gets_ready = false;
}

/* The one of whom had least. */
static struct pass *find_first(struct passes *p)
{
	struct sched_lane *in = p->now.job.lanes[0];
	const struct sched_model *model = turn_first(p->core, STEP_IN_PASS, in)->step.model;

	for (uint32_t i = 0; i < p->n_aside; i++)
		if (p->aside[i].job.model == model)
			return &p->aside[i];
	return &p->now;
}

static double left_ns(const struct pass *pass)
{
	return pass->ns - pass->ran_ns;
}

static struct pass *find_shortest(struct passes *p)
{
	struct pass *shortest = &p->now;

	for (uint32_t i = 0; i < p->n_aside; i++)
		if (left_ns(&p->aside[i]) < left_ns(shortest))
			shortest = &p->aside[i];
	return shortest;
}

void pass_choose(struct passes *p)
{
	struct pass *chosen = who_is_first(p) ? find_shortest(p) : find_first(p);

	if (chosen == &p->now)
		return;
	swap(&p->now, chosen);
	p->gets_ready = false;
}
