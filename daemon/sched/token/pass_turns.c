/*
 * pass_turns.c - several programs' passes under way, in turns of users.
 *
 *      now   A1 A2 A3 |  B1 B2  | A4 A5 ...      B's user has had less, until B3
 *      aside          |  A      | B
 *
 * A pass has lanes of one program, and its rows stay there between segments. So another program's
 * pass can come between two: nobody waits for all of another user's. Who is in one, or has had as
 * much, does not cut in: what he wants comes behind it.
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

struct sched_lane *pass_who_cuts_in(const struct passes *p)
{
	const struct step_queues *steps = &p->core->steps;
	const struct sched_lane *in = turn_first(p->core, STEP_IN_PASS, NULL);
	struct sched_lane *lane, *first = NULL;

	if (!in || p->n_aside == PASSES_ASIDE)
		return NULL;
	TAILQ_FOREACH (lane, &steps->lanes[STEP_AWAITING_PASS], state_link)
		if (lane->session->user != in->session->user &&
		    turn_is_before(p->core, lane, first ? first : in) &&
		    !is_under_way(p, lane->step.model))
			first = lane;
	return first;
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

void pass_choose(struct passes *p)
{
	const struct sched_lane *first;

	if (p->n_aside == 0)
		return;
	first = turn_first(p->core, STEP_IN_PASS, p->now.job.lanes[0]);
	for (uint32_t i = 0; i < p->n_aside; i++) {
		if (p->aside[i].job.model != first->step.model)
			continue;
		swap(&p->now, &p->aside[i]);
		p->gets_ready = false;
	}
}
