/*
 * plan_school.c - see plan_school.h. A plan is a list of paths here, and a backend's run fails the
 * test whose plan has other paths than the sequences have.
 */
#include "plan_school.h"

#include "plan_paths.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PLANS 64u

/* By plans' numbers; what is prepared and what is taken in are never the same plan's at once. */
static struct {
	uint32_t room; /* tokens that one takes in */
	struct plan_paths of[PLANS];
	_Atomic uint32_t n_prepared;
	const struct passes *passes;
	int (*run)(struct backend *b, const struct backend_run *run, struct backend_ran *ret);
} plans;

static struct plan_paths *plan_of(const struct backend_job *job)
{
	return &plans.of[job->plan_id % PLANS];
}

static int take_in(struct backend *b, const struct backend_job *job)
{
	struct plan_paths *p = plan_of(job);

	(void)b;
	assert_int_equal(p->id, job->plan_id);
	if (p->n_taken == plans.room)
		return -ESTALE;
	plan_paths_take(p, job);
	return plans.room - p->n_taken < 4 ? BACKEND_SOON : 0;
}

static int prepare(struct backend *b, const struct backend_job *job)
{
	(void)b;
	plan_paths_fill(plan_of(job), job);
	atomic_fetch_add(&plans.n_prepared, 1);
	return 0;
}

/* Its plan has all paths as they are, and drafts are planned as such. */
static int run(struct backend *b, const struct backend_run *run, struct backend_ran *ret)
{
	struct plan_paths *p = plan_of(run->job);

	if (p->id != run->job->plan_id)
		plan_paths_fill(p, run->job);
	for (uint32_t q = 0; q < plans.passes->now->job.n_parts; q++) {
		const struct sched_seq *seq = plans.passes->now->job.parts[q]->seq;

		plan_paths_check(p, q, seq->store);
		assert_int_equal(run->job->tree->queries[q].parents != NULL, seq->draft);
	}
	return plans.run(b, run, ret);
}

struct school *school_of_n(uint32_t room)
{
	return school_of_shares(room, 100);
}

struct school *school_of_shares(uint32_t room, uint32_t domain_percent)
{
	struct school *s = school_new(0.01 * MS);

	memset(&plans, 0, sizeof(plans));
	plans.room = room;
	s->h.config.domain_percent = domain_percent;
	s->ops.advance = take_in;
	s->ops.prepare = prepare;
	plans.run = s->program.run;
	s->program.run = run;
	school_start(s);
	plans.passes = &s->h.sched->passes;
	for (uint32_t i = 0; i < N; i++)
		join(s, 1, 1, 1)->wants = true;
	go_passes(s, 4);
	return s;
}

void go_slowly(struct school *s, uint32_t n)
{
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;

	for (uint32_t i = 0; i < n; i++) {
		go_passes(s, 1);
		while (atomic_load(&ahead->state) == PLAN_AHEAD_MAKING)
			usleep(100);
	}
}

void go_slowly_till_has(struct school *s, const struct pupil *p)
{
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;

	while (!has(p)) {
		go_round(s);
		while (plan_ahead_is_making(ahead))
			usleep(100);
	}
}

uint32_t n_made_ahead(void)
{
	return atomic_load(&plans.n_prepared);
}

uint64_t n_made_in_passes(const struct school *s)
{
	return s->h.sched->passes.plans->cache.last_id - n_made_ahead();
}

void go_for_all(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		while (!has(&s->pupils[i]))
			go_round(s);
}

void stop(struct school *s, struct pupil *p)
{
	p->again = 0;
	while (!has(p))
		go_round(s);
}

void stop_all(struct school *s)
{
	for (uint32_t i = 0; i < N; i++)
		s->pupils[i].again = 0;
	go_for_all(s);
}
