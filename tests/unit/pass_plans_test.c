/*
 * pass_plans_test.c - plans of passes that are made while the backend has the pass before: by a
 * backend whose plans take in tokens, and can be made ahead.
 */
#include "plan_school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMES_MAX 10000u

static void a_plan_that_ends_is_followed_by_one_made_meanwhile(void **state)
{
	struct school *s = school_of_n(16);
	uint64_t before = n_made_in_passes(s);

	(void)state;
	go_slowly(s, 100);
	assert_int_equal(n_made_in_passes(s), before);
	assert_in_range(s->h.sched->core.stats.plans_ahead, 100 / 16, 100 / 4);
	school_free(s);
}

/* The pass that has its prompt has a plan of its own; all others go by what was made before. */
static void who_has_had_a_prompt_decodes_by_a_plan_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *newcomer = join(s, 1, 0, 1);
	uint64_t before = n_made_in_passes(s);

	(void)state;
	newcomer->wants = true;
	ask(newcomer, PROMPT);
	while (!has(newcomer))
		go_slowly(s, 1);
	assert_int_equal(n_made_in_passes(s), before + 1);
	newcomer->again = 1;
	go_slowly(s, 20);
	assert_int_equal(n_made_in_passes(s), before + 1);
	assert_int_equal(world.n_rows, N + 1);
	school_free(s);
}

/* They all have their prompts in the same pass. */
static void first_tokens_go_by_a_plan_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	uint64_t before;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], PROMPT);
	go_slowly(s, 1);
	go_for_all(s);
	for (uint32_t i = 0; i < N; i++)
		s->pupils[i].again = 1;
	go_slowly(s, 10);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* Their plan lacks a token that they had beside the other's prompt. */
static void who_stays_keeps_his_plan_when_a_newcomer_has_gone(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *newcomer = join(s, 1, 0, 1);
	uint64_t before = n_made_in_passes(s);

	(void)state;
	ask(newcomer, PROMPT);
	while (!has(newcomer))
		go_slowly(s, 1);
	go_slowly(s, 20);
	assert_int_equal(n_made_in_passes(s), before + 1);
	assert_int_equal(world.n_rows, N);
	school_free(s);
}

/* Each pass without one of them, who comes for the next one. */
static void who_is_late_for_a_pass_has_his_row_in_it(void **state)
{
	struct school *s = school_of_n(1000);
	uint64_t before;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	for (uint32_t token = 0; token < 20; token++) {
		for (uint32_t i = 0; i < N; i++)
			if (i != token % (N + 1))
				ask(&s->pupils[i], 1);
		go_slowly(s, 1);
		assert_int_equal(world.n_rows, token % (N + 1) < N ? N - 1 : N);
		go_for_all(s);
	}
	assert_int_equal(n_made_in_passes(s), before);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(end_of(&s->pupils[i]).status, 0);
	school_free(s);
}

/* All plans that are kept are for some who have gone: paths are walked for what the pass takes, and
 * for its own plan, and for none of these. */
static void plans_that_do_not_serve_are_not_weighed(void **state)
{
	struct school *s = school_of_n(1000);
	const struct plans *kept = s->h.sched->passes.plans;
	uint64_t before;

	(void)state;
	stop_all(s);
	for (uint32_t k = 0; k < 8; k++) {
		struct pupil *more = join(s, 1, 0, 1);

		for (uint32_t i = 0; i < N; i++)
			ask(&s->pupils[i], 1);
		ask(more, 1);
		go_for_all(s);
		assert_int_equal(client_close(&more->c, more->seq), 0);
	}
	before = kept->n_trees;
	ask(&s->pupils[0], 1);
	go_slowly(s, 1);
	assert_int_equal(kept->n_trees - before, 2);
	go_for_all(s);
	school_free(s);
}

/* While the first pass without him is run, the next one's plan is made. */
static void who_stays_away_has_no_row_for_long(void **state)
{
	struct school *s = school_of_n(1000);
	struct pupil *last = &s->pupils[N - 1];
	uint64_t before;

	(void)state;
	stop(s, last);
	before = n_made_in_passes(s);
	go_slowly(s, 1);
	assert_int_equal(s->h.sched->passes.now->job.n_absent, 1);
	assert_int_equal(client_close(&last->c, last->seq), 0);
	go_slowly(s, 20);
	assert_int_equal(s->h.sched->passes.now->job.n_absent, 0);
	assert_int_equal(n_made_in_passes(s), before);
	school_free(s);
}

/* Of a program whose weights are read in no time a plan is dearer than nobody's row. */
static void nobody_has_a_row_that_is_dearer_than_a_plan(void **state)
{
	struct school *s = school_of_n(1000);
	uint64_t before = n_made_in_passes(s);

	(void)state;
	s->pupils[0].c.session->models[0]->program->cost.fixed_ns = 1;
	s->pupils[0].again = 0;
	while (!has(&s->pupils[0]))
		go_slowly(s, 1);
	go_slowly(s, 20);
	assert_int_equal(s->h.sched->passes.now->job.n_absent, 0);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* Until then; the time of each of the pupil's tokens. */
static uint32_t time_tokens(struct school *s, struct pupil *p, uint64_t end_ns, double *times_ns,
			    uint32_t n)
{
	uint64_t asked_ns = world.now_ns, ticket = p->c.ticket;

	while (world.now_ns < end_ns) {
		go_round(s);
		if (p->c.ticket == ticket)
			continue;
		ticket = p->c.ticket;
		times_ns[n++] = (double)(world.now_ns - asked_ns);
		asked_ns = world.now_ns;
		assert_true(n < TIMES_MAX);
	}
	return n;
}

static int by_length(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Eight decode. Of others each second one leaves, and one joins with a prompt that takes some 0.4
 * of a token's time. */
static void who_joins_and_leaves_makes_few_tokens_longer(void **state)
{
	static double times_ns[TIMES_MAX];
	struct school *s = school_of_n(20);
	struct pupil *last = NULL;
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = N; i < 8; i++)
		join(s, 1, 1, 1)->wants = true;
	go_passes(s, 4);
	for (uint32_t second = 0; second < 4; second++) {
		struct pupil *next = join(s, 1, 0, 1);

		next->wants = true;
		ask(next, 200);
		if (last)
			assert_int_equal(client_close(&last->c, last->seq), 0);
		next->again = 1;
		last = next;
		n = time_tokens(s, &s->pupils[0], world.now_ns + (uint64_t)(1000 * MS), times_ns,
				n);
		stop(s, last);
	}
	qsort(times_ns, n, sizeof(*times_ns), by_length);
	assert_true(times_ns[n - 1] > 1.3 * times_ns[n / 2]);
	assert_true(times_ns[n * 99 / 100] <= 1.3 * times_ns[n / 2]);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plan_that_ends_is_followed_by_one_made_meanwhile),
		cmocka_unit_test(who_has_had_a_prompt_decodes_by_a_plan_made_meanwhile),
		cmocka_unit_test(first_tokens_go_by_a_plan_made_meanwhile),
		cmocka_unit_test(who_stays_keeps_his_plan_when_a_newcomer_has_gone),
		cmocka_unit_test(who_is_late_for_a_pass_has_his_row_in_it),
		cmocka_unit_test(plans_that_do_not_serve_are_not_weighed),
		cmocka_unit_test(who_stays_away_has_no_row_for_long),
		cmocka_unit_test(nobody_has_a_row_that_is_dearer_than_a_plan),
		cmocka_unit_test(who_joins_and_leaves_makes_few_tokens_longer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
