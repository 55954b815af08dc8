/*
 * company.c - whom a pass waits for, and until when.
 *
 * Who comes a moment late has a pass of its own to wait for, and the weights are read once more for
 * it. So lanes that the last pass served are waited for, whether others are ready or not, and lanes
 * on which a sequence has just been opened. Who waits pays for it: a lane that comes later than it
 * usually does is waited for as long as that costs those who wait no more than it saves the late
 * ones. Who has another model does not wait for any of it.
 *
 * Several who begin at once come one after the other, as their sequences are opened: while none but
 * such newcomers is ready, and there are sessions that may be some, they wait a part of a pass for
 * the next one. Where nobody came, nobody waits so for a while.
 *
 * A wait of another user's counts as backend time of whom it was for: from one's coming to the next
 * one's, or all of it where somebody does not come. Who is often waited for in vain by others is
 * not waited for by them any more, until he has come as often.
 */
#include "company.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/core/turns.h"
#include "daemon/sched/seq/pace.h"

#include "proto/arith.h"
#include "proto/clock.h"

#include <math.h>

#define MOST_PART 0.5 /* of what a pass of its own would take, at most */
#define LATE_PART 0.5 /* of what the late ones save, as they may not come at all */
#define THERE_NS NS_PER_S /* who has asked for anything, or had it, is there so long */
#define NEWCOMER_NS NS_PER_MS /* from a sequence's opening to its first tokens */
#define GATHER_PART 0.1 /* of a pass, from one newcomer to the next */
#define ENOUGH_PART 0.5 /* of the budget, by products alone: newcomers who fill a pass themselves */
#define ALONE_TIMES 20 /* what was waited in vain, until newcomers wait so again */
/* Of a pass, too: what others have waited for a user in vain, at most, and how much of it each pass
 * is worth to which he comes. */
#define VAIN_PART 1.0
#define CAME_PART 0.05

struct company {
	const struct sched_user *user; /* one who is ready */
	uint64_t user_ns, other_ns; /* since when he is, and any other; UINT64_MAX: nobody */
	bool newcomers; /* nobody else is, and of their tokens none has been computed */
	double ready_ns; /* their products */
	uint32_t n_ready, n_missing; /* and may only be late */
	uint64_t since_ns; /* the pass could have begun then */
	uint64_t last_ns; /* who is ready has come by then */
	uint64_t end_ns; /* of a wait that is over */
	uint64_t usual_ns; /* those who are missing are usually there by then */
};

static bool others_wait(const struct passes *p, const struct sched_model *model)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_AWAITING_PASS], state_link)
		if (lane->step.model != model)
			return true;
	return false;
}

static void add_arrival(struct company *company, const struct sched_lane *lane)
{
	bool other = lane->session->user != company->user;
	uint64_t *first_ns = other ? &company->other_ns : &company->user_ns;

	*first_ns = min_u64(*first_ns, lane->step.arrival_ns);
	company->last_ns = max_u64(company->last_ns, lane->step.arrival_ns);
}

static void add_ready(const struct passes *p, struct company *company)
{
	const struct sched_lane *lane;

	company->user_ns = company->other_ns = UINT64_MAX;
	company->newcomers = true;
	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_AWAITING_PASS], state_link) {
		if (company->n_ready++ == 0)
			company->user = lane->session->user;
		add_arrival(company, lane);
		company->newcomers &= lane->decode.newcomer && decode_tokens_done(lane) == 0;
		company->ready_ns +=
			decode_tokens_left(lane) * lane->step.model->program->cost.row_ns;
	}
	company->since_ns = max_u64(min_u64(company->user_ns, company->other_ns), p->last_ns);
}

/* A sequence has just been opened there. Who opens one after the other and never comes is not
 * waited for again until he has. */
static bool is_newcomer(const struct passes *p, const struct sched_lane *lane,
			const struct sched_model *model)
{
	uint64_t first_ns = lane->session->user->opened_ns, now_ns = p->core->now_ns;

	return lane->opened == model && now_ns < lane->opened_ns + NEWCOMER_NS &&
	       (first_ns == 0 || now_ns < first_ns + NEWCOMER_NS);
}

/* Until when the lane may be expected; 0: it may not. */
static uint64_t expected_until_ns(const struct passes *p, const struct sched_lane *lane,
				  const struct sched_model *model)
{
	bool was_served = lane->decode.pass == p->last_number && lane->pace.model == model;

	if (lane->broken)
		return 0;
	if (is_newcomer(p, lane, model))
		return lane->opened_ns + NEWCOMER_NS;
	return was_served && model == p->last_model ? pace_latest_ns(lane) : 0;
}

/* Since when users beside the lane's are ready. */
static uint64_t others_since_ns(const struct company *company, const struct sched_lane *lane)
{
	return lane->session->user == company->user ? company->other_ns : company->user_ns;
}

static bool others_are_ready(const struct company *company, const struct sched_lane *lane)
{
	return others_since_ns(company, lane) != UINT64_MAX;
}

/* Who usually takes longer than is waited at most is not waited for at all. */
static bool is_worth_it(const struct passes *p, const struct sched_lane *lane,
			const struct sched_model *model, uint64_t most_ns,
			const struct company *company)
{
	if (others_are_ready(company, lane) &&
	    lane->session->user->vain_ns > VAIN_PART * model->program->cost.fixed_ns)
		return false;
	return is_newcomer(p, lane, model) || pace_usual_ns(lane) <= company->since_ns + most_ns;
}

/* Whoever has had a prompt computed and has not come again may have wanted no more: prompts that
 * take longer than the weights do not wait for him as for one who is late. */
static bool may_be_late(const struct sched_lane *lane, const struct sched_model *model,
			const struct company *company)
{
	return lane->pace.n_lags > 0 || !company->newcomers ||
	       company->ready_ns < model->program->cost.fixed_ns;
}

static void add_missing(const struct passes *p, const struct sched_model *model, uint64_t most_ns,
			struct company *company)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link) {
		uint64_t until_ns = expected_until_ns(p, lane, model);

		if (until_ns == 0 || !is_worth_it(p, lane, model, most_ns, company))
			continue;
		lane->decode.awaited = p->number + 1;
		company->n_missing += may_be_late(lane, model, company);
		if (until_ns > company->usual_ns)
			company->usual_ns = until_ns;
	}
}

static bool has_model(const struct passes *p, const struct sched_session *session,
		      const struct sched_model *model)
{
	for (uint32_t i = 0; i < p->core->config->max_models; i++)
		if (session->models[i] == model)
			return true;
	return false;
}

static bool others_may_come(const struct passes *p, const struct sched_model *model)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link)
		if (!lane->broken && has_model(p, lane->session, model))
			return true;
	return false;
}

/* Until when newcomers wait for others; 0: they do not. */
static uint64_t gather_until_ns(const struct passes *p, const struct sched_model *model,
				const struct company *company)
{
	if (!company->newcomers || company->since_ns < p->alone_until_ns ||
	    company->ready_ns >= ENOUGH_PART * pass_budget_ns(p->core) ||
	    !others_may_come(p, model))
		return 0;
	return company->last_ns + (uint64_t)(GATHER_PART * model->program->cost.fixed_ns);
}

/* The same for those who are missing. Who is too late waits for a pass like the last one. */
static uint64_t missing_until_ns(const struct passes *p, const struct sched_model *model,
				 const struct company *company)
{
	double last_ns = model == p->last_model ? p->now->ran_ns : 0;
	double pass_ns = fmax(last_ns, model->program->cost.fixed_ns);
	uint64_t late_ns = (uint64_t)(LATE_PART * pass_ns * company->n_missing / company->n_ready);
	uint64_t until_ns = company->since_ns + late_ns;

	return company->n_missing > 0 ? max_u64(company->usual_ns, until_ns) : company->usual_ns;
}

uint64_t company_until_ns(const struct passes *p, const struct sched_model *model)
{
	double pass_ns = model->program->cost.fixed_ns;
	uint64_t most_ns = p->core->config->batch_window_max_us * UINT64_C(1000);
	uint64_t until_ns;
	struct company company = {0};

	if ((double)most_ns > MOST_PART * pass_ns)
		most_ns = (uint64_t)(MOST_PART * pass_ns);
	if (others_wait(p, model))
		return 0;
	add_ready(p, &company);
	if (p->core->now_ns >= company.since_ns + most_ns)
		return 0;
	add_missing(p, model, most_ns, &company);
	until_ns =
		max_u64(missing_until_ns(p, model, &company), gather_until_ns(p, model, &company));
	return min_u64(until_ns, company.since_ns + most_ns);
}

static bool is_there(const struct passes *p, const struct sched_lane *lane)
{
	uint64_t now_ns = p->core->now_ns;

	return lane->state != STEP_FREE || now_ns < step_seen_ns(&lane->step) + THERE_NS ||
	       now_ns < lane->opened_ns + THERE_NS;
}

bool company_is_there(const struct passes *p, const struct sched_lane *of)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->lanes, link)
		if (lane != of && is_there(p, lane))
			return true;
	return false;
}

/* It waits for tokens of another model, or has or had a pass of one. What was refused, or was
 * cancelled before it had any, cost nothing and says nothing. */
static bool is_of_others(const struct passes *p, const struct sched_lane *lane,
			 const struct sched_model *model)
{
	if (lane->state == STEP_AWAITING_PASS || lane->state == STEP_IN_PASS)
		return lane->step.model != model;
	return lane->decode.pass_ns && lane->decode.pass_of != model &&
	       p->core->now_ns < lane->decode.pass_ns + THERE_NS;
}

bool company_is_of_others(const struct passes *p, const struct sched_model *model)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->lanes, link)
		if (is_of_others(p, lane, model))
			return true;
	return false;
}

bool company_may_cut_in(const struct passes *p)
{
	const struct sched_user *user = p->now->job.lanes[0]->session->user;
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->lanes, link)
		if (lane->session->user != user && is_of_others(p, lane, p->now->job.model))
			return true;
	return false;
}

/* ---- whose the wait was --------------------------------------------------------------------- */

static bool is_awaited(const struct passes *p, const struct sched_lane *lane)
{
	return lane->decode.awaited == p->number + 1;
}

/* Those who have not come. */
static uint32_t count_absent(const struct passes *p)
{
	const struct sched_lane *lane;
	uint32_t n = 0;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link)
		n += is_awaited(p, lane);
	return n;
}

/* The wait was the lane's, as far as it was another user's. */
static void charge(const struct passes *p, const struct company *company, struct sched_lane *lane,
		   uint64_t since_ns, uint64_t until_ns)
{
	since_ns = max_u64(since_ns, others_since_ns(company, lane));
	until_ns = min_u64(until_ns, company->end_ns);
	if (since_ns < until_ns)
		turn_take(p->core, lane, (double)(until_ns - since_ns));
}

/* To each such one who has come later, in the order in which they have, the time since the one
 * before. Returns the last, or last. */
static struct sched_lane *charge_arrivals(const struct passes *p, const struct company *company,
					  bool awaited, uint64_t *since_ns, struct sched_lane *last)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_AWAITING_PASS], state_link) {
		if (is_awaited(p, lane) != awaited || lane->step.arrival_ns <= *since_ns)
			continue;
		charge(p, company, lane, *since_ns, lane->step.arrival_ns);
		*since_ns = lane->step.arrival_ns;
		last = lane;
	}
	return last;
}

/* Who comes by chance pays for no wait for another, but for what was waited longer. For whom was
 * waited in the end nobody knows: it is the last one's, by whom it is longer. Returns whether any
 * has come. */
static bool charge_who_came(const struct passes *p, const struct company *company)
{
	uint64_t since_ns = company->since_ns;
	struct sched_lane *last = charge_arrivals(p, company, true, &since_ns, NULL);

	last = charge_arrivals(p, company, false, &since_ns, last);
	if (last)
		charge(p, company, last, since_ns, company->end_ns);
	return last;
}

static void charge_absent(struct passes *p, const struct company *company, double ns)
{
	struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link) {
		if (!is_awaited(p, lane) || !others_are_ready(company, lane))
			continue;
		turn_take(p->core, lane, ns);
		lane->session->user->vain_ns += ns;
	}
}

void company_charge(struct passes *p)
{
	uint64_t end_ns = min_u64(p->held_until_ns, p->core->now_ns);
	struct company company = {.end_ns = end_ns};
	uint32_t n_absent = count_absent(p);

	add_ready(p, &company);
	if (end_ns <= company.since_ns)
		return;
	if (n_absent > 0)
		charge_absent(p, &company, (double)(end_ns - company.since_ns) / n_absent);
	else if (!charge_who_came(p, &company))
		p->alone_until_ns = end_ns + ALONE_TIMES * (end_ns - company.since_ns);
}

void company_came(struct passes *p)
{
	double ns = CAME_PART * p->now->job.model->program->cost.fixed_ns;

	for (uint32_t i = 0; i < p->now->job.n_lanes; i++) {
		struct sched_user *user = p->now->job.lanes[i]->session->user;

		if (user->came == p->now->number)
			continue;
		user->came = p->now->number;
		user->vain_ns = fmax(user->vain_ns - ns, 0);
	}
}
