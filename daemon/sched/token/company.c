/*
 * company.c - whom a pass waits for, and until when.
 *
 * Who comes a moment late has a pass of its own to wait for, and the weights are read once more for
 * it. So lanes that the last pass served are waited for, whether others are ready or not, and lanes
 * on which a sequence has just been opened. Who waits pays for it: a lane that comes later than it
 * usually does is waited for as long as that costs those who wait no more than it saves the late
 * ones. Who has another model does not wait for any of it.
 */
#include "company.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/seq/pace.h"

#define MOST_PART 0.5 /* of what a pass of its own would take, at most */
#define LATE_PART 0.5 /* of what the late ones save, as they may not come at all */
#define NEWCOMER_NS UINT64_C(1000000) /* from a sequence's opening to its first tokens */

struct company {
	uint32_t n_ready, n_missing;
	uint64_t since_ns; /* the pass could have begun then */
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

static void add_ready(const struct passes *p, struct company *company)
{
	const struct sched_lane *lane;
	uint64_t first_ns = UINT64_MAX;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_AWAITING_PASS], state_link) {
		company->n_ready++;
		if (lane->step.arrival_ns < first_ns)
			first_ns = lane->step.arrival_ns;
	}
	company->since_ns = first_ns > p->last_ns ? first_ns : p->last_ns;
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
	bool was_served = lane->decode.pass == p->number && lane->pace.model == model;

	if (lane->broken)
		return 0;
	if (is_newcomer(p, lane, model))
		return lane->opened_ns + NEWCOMER_NS;
	return was_served && model == p->last_model ? pace_latest_ns(lane) : 0;
}

/* Who usually takes longer than is waited at most is not waited for at all. */
static void add_missing(const struct passes *p, const struct sched_model *model, uint64_t most_ns,
			struct company *company)
{
	const struct sched_lane *lane;

	TAILQ_FOREACH (lane, &p->core->steps.lanes[STEP_FREE], state_link) {
		uint64_t until_ns = expected_until_ns(p, lane, model);
		bool is_slow = !is_newcomer(p, lane, model) &&
			       pace_usual_ns(lane) > company->since_ns + most_ns;

		if (until_ns == 0 || is_slow)
			continue;
		company->n_missing++;
		if (until_ns > company->usual_ns)
			company->usual_ns = until_ns;
	}
}

uint64_t company_until_ns(const struct passes *p, const struct sched_model *model)
{
	double pass_ns = model->program->cost.fixed_ns;
	uint64_t most_ns = p->core->config->batch_window_max_us * UINT64_C(1000), until_ns;
	struct company company = {0};

	if ((double)most_ns > MOST_PART * pass_ns)
		most_ns = (uint64_t)(MOST_PART * pass_ns);
	if (others_wait(p, model))
		return 0;
	add_ready(p, &company);
	if (p->core->now_ns >= company.since_ns + most_ns)
		return 0;
	add_missing(p, model, most_ns, &company);
	if (company.n_missing == 0)
		return 0;
	until_ns = company.since_ns +
		   (uint64_t)(LATE_PART * pass_ns * company.n_missing / company.n_ready);
	if (company.usual_ns > until_ns)
		until_ns = company.usual_ns;
	return until_ns < company.since_ns + most_ns ? until_ns : company.since_ns + most_ns;
}
