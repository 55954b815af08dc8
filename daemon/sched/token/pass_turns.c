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

#include <assert.h>

static bool is_under_way(const struct passes *p, const struct sched_model *model)
{
	for (uint32_t i = 0; i < BACKEND_PROGRAMS_AT_ONCE; i++)
		if (p->all[i].under_way && p->all[i].job.model == model)
			return true;
	return false;
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

static bool is_full(const struct passes *p)
{
	return p->n_under_way == BACKEND_PROGRAMS_AT_ONCE;
}

struct sched_lane *pass_who_cuts_in(const struct passes *p)
{
	return is_full(p) ? NULL : who_is_first(p);
}

bool pass_may_cut_in(const struct passes *p, const struct sched_model *model)
{
	return !is_full(p) && !is_under_way(p, model);
}

/* What was foreseen is not of this one. */
static void go_to(struct passes *p, struct pass *pass)
{
	if (pass == p->now)
		return;
	p->now = pass;
	p->gets_ready = false;
}

/* There is one. */
static struct pass *find_any(struct passes *p, bool under_way)
{
	uint32_t i = 0;

	for (; p->all[i].under_way != under_way; i++)
		assert(i + 1 < BACKEND_PROGRAMS_AT_ONCE);
	return &p->all[i];
}

void pass_put_aside(struct passes *p)
{
	go_to(p, find_any(p, false));
}

void pass_take_back(struct passes *p)
{
	if (p->n_under_way > 0)
		go_to(p, find_any(p, true));
}

/* The one of whom had least. */
static struct pass *find_first(struct passes *p)
{
	struct sched_lane *in = p->now->job.lanes[0];
	const struct sched_model *model = turn_first(p->core, STEP_IN_PASS, in)->step.model;
	struct pass *first = p->now;

	for (uint32_t i = 0; i < BACKEND_PROGRAMS_AT_ONCE; i++)
		if (p->all[i].under_way && p->all[i].job.model == model)
			first = &p->all[i];
	return first;
}

static double left_ns(const struct pass *pass)
{
	return pass->ns - pass->ran_ns;
}

static struct pass *find_shortest(struct passes *p)
{
	struct pass *shortest = p->now;

	for (uint32_t i = 0; i < BACKEND_PROGRAMS_AT_ONCE; i++)
		if (p->all[i].under_way && left_ns(&p->all[i]) < left_ns(shortest))
			shortest = &p->all[i];
	return shortest;
}

void pass_choose(struct passes *p)
{
	bool one_waits = who_is_first(p);

	p->core->stats.pass_slot_waits += one_waits;
	go_to(p, one_waits ? find_shortest(p) : find_first(p));
}
