/*
 * pass_plans_test.c - plans of passes that are made while the backend has the pass before: by a
 * backend whose plans take in tokens, and can be made ahead.
 */
#include "plan_paths.h"
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/sched_impl.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N 3u
#define PLANS 64u
#define PROMPT 20u
#define TIMES_MAX 10000u

/* By plans' numbers; what is prepared and what is taken in are never the same plan's at once. */
static struct {
	uint32_t room; /* tokens that one takes in */
	struct plan_paths of[PLANS];
	_Atomic uint32_t n_prepared;
	const struct passes *passes;
	int (*run)(struct backend *b, const struct backend_run *run, uint64_t *ret_id);
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
static int run(struct backend *b, const struct backend_run *run, uint64_t *ret_id)
{
	struct plan_paths *p = plan_of(run->job);

	if (p->id != run->job->plan_id)
		plan_paths_fill(p, run->job);
	for (uint32_t q = 0; q < plans.passes->job.n_parts; q++) {
		const struct sched_seq *seq = plans.passes->job.parts[q]->seq;

		plan_paths_check(p, q, seq->store);
		assert_int_equal(run->job->tree->queries[q].parents != NULL, seq->draft);
	}
	return plans.run(b, run, ret_id);
}

/* N sessions that have decoded a few tokens together. */
static struct school *school_of_n(uint32_t room)
{
	struct school *s = school_new(0.01 * MS);

	memset(&plans, 0, sizeof(plans));
	plans.room = room;
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

/* Passes one after the other; a plan that is begun in one is made before it ends. */
static void go_slowly(struct school *s, uint32_t n)
{
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;

	for (uint32_t i = 0; i < n; i++) {
		go_passes(s, 1);
		while (atomic_load(&ahead->state) == PLAN_AHEAD_MAKING)
			usleep(100);
	}
}

/* Until it has what it asked for; no pass ends before a plan that is begun in it is made. */
static void go_slowly_till_has(struct school *s, const struct pupil *p)
{
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;

	while (!has(p)) {
		go_round(s);
		while (plan_ahead_is_making(ahead))
			usleep(100);
	}
}

/* While whoever waits for their pass waited for that, too. */
static uint64_t n_made_in_passes(const struct school *s)
{
	return s->h.sched->passes.plans->cache.last_id - atomic_load(&plans.n_prepared);
}

/* Until all have what they asked for. */
static void go_for_all(struct school *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		while (!has(&s->pupils[i]))
			go_round(s);
}

/* Asks no more, and has what it asked for. */
static void stop(struct school *s, struct pupil *p)
{
	p->again = 0;
	while (!has(p))
		go_round(s);
}

static void stop_all(struct school *s)
{
	for (uint32_t i = 0; i < N; i++)
		s->pupils[i].again = 0;
	go_for_all(s);
}

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
	assert_int_equal(s->h.sched->passes.job.n_absent, 1);
	assert_int_equal(client_close(&last->c, last->seq), 0);
	go_slowly(s, 20);
	assert_int_equal(s->h.sched->passes.job.n_absent, 0);
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
	assert_int_equal(s->h.sched->passes.job.n_absent, 0);
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

/* Nobody waits for what follows a prompt of which nothing is wanted. */
static void nothing_is_foreseen_of_who_does_not_come_again(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);

	(void)state;
	stop_all(s);
	ask(reader, PROMPT);
	go_slowly_till_has(s, reader);
	assert_int_equal(atomic_load(&plans.n_prepared), 0);
	school_free(s);
}

/* Each chunk but the first, none of which is as long as a page or begins with one. */
static void a_long_prompt_goes_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);
	uint64_t before;

	(void)state;
	stop_all(s);
	ask(reader, 5);
	go_slowly_till_has(s, reader);
	before = n_made_in_passes(s);
	ask(reader, 3 * MAX_ROWS + 100);
	go_slowly_till_has(s, reader);
	assert_int_equal(n_made_in_passes(s), before + 1);
	assert_int_equal(atomic_load(&plans.n_prepared), 3);
	school_free(s);
}

/* Those who decode come again for each of them. */
static void a_long_prompt_beside_others_goes_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1);
	uint64_t before = n_made_in_passes(s), n_passes = world.n_passes;

	(void)state;
	ask(reader, 900);
	go_slowly_till_has(s, reader);
	assert_true(world.n_passes - n_passes >= 3);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* More than a pass has, of several who have come at once. */
static void prompts_of_many_go_by_plans_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	uint64_t before, n_passes;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	n_passes = world.n_passes;
	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 200);
	for (uint32_t i = 0; i < N; i++)
		go_slowly_till_has(s, &s->pupils[i]);
	assert_in_range(world.n_passes - n_passes, 3, 4);
	assert_int_equal(n_made_in_passes(s), before + 1);
	school_free(s);
}

/* It comes while the others' pass is under way. */
static void a_newcomers_prompt_goes_by_a_plan_made_meanwhile(void **state)
{
	struct school *s = school_of_n(100);
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;
	struct pupil *newcomer = join(s, 1, 0, 1);
	uint64_t before;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 1);
	while (!s->h.sched->passes.in_flight)
		go_for(s, ROUND_NS);
	ask(newcomer, PROMPT);
	go_for(s, 3 * ROUND_NS);
	assert_true(s->h.sched->passes.in_flight);
	while (plan_ahead_is_making(ahead))
		usleep(100);
	for (uint32_t i = 0; i < N; i++)
		s->pupils[i].again = 1;
	go_slowly_till_has(s, newcomer);
	assert_int_equal(n_made_in_passes(s), before);
	school_free(s);
}

/* While a long prompt's pass is under way, of which more is left, and plans are made. */
static void look_ahead(struct school *s)
{
	for (uint32_t i = 0; i < 3; i++) {
		go_for(s, ROUND_NS);
		while (plan_ahead_is_making(&s->h.sched->passes.plans->ahead))
			usleep(100);
	}
	assert_true(s->h.sched->passes.in_flight);
}

/* Its sequence is one on the first tokens of the other's. */
static void stand_in_the_middle(struct pupil *p, const struct pupil *other, uint32_t n)
{
	uint32_t ids[100];
	struct store_match match;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = (i + (uint32_t)other->seq) % N_VOCAB;
	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_open(&p->c, ids, n, &p->seq, &match), 0);
	assert_int_equal(match.cached, n - 1);
}

/* What comes next leaves a path there that nobody has left before. */
static void a_path_that_ends_in_the_middle_of_anothers_is_planned_as_it_is(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *first = join(s, 1, 0, 1), *p = join(s, 1, 0, 1);

	(void)state;
	stop_all(s);
	ask(first, 100);
	go_slowly_till_has(s, first);
	stand_in_the_middle(p, first, 50);
	ask(reader, 2 * MAX_ROWS);
	while (!s->h.sched->passes.in_flight)
		go_for(s, ROUND_NS);
	ask(p, 40);
	look_ahead(s);
	go_slowly_till_has(s, reader);
	go_slowly_till_has(s, p);
	school_free(s);
}

/* Tokens that are all the next one behind the sequence. */
static void ask_for_a_draft(struct pupil *p, uint32_t n)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[2 * ABI_DECODE_DRAFT_MAX]; /* and parents */
	} body = {.seq = {.seq = p->seq, .n_new = n}};

	memset(body.ids + n, 0xff, n * sizeof(*body.ids));
	client_submit(&p->c,
		      (struct abi_entry){.kind = ABI_DECODE,
					 .flags = ABI_EXTEND_PARENTS,
					 .count = 1},
		      &body,
		      (uint32_t)(sizeof(body.head) + sizeof(body.seq) + 2 * n * sizeof(*body.ids)));
}

/* It comes while a long prompt is computed, of which more is left. */
static void a_draft_goes_by_no_plan_that_took_it_for_tokens(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *drafter = &s->pupils[0];

	(void)state;
	stop_all(s);
	ask(reader, 2 * MAX_ROWS);
	while (!s->h.sched->passes.in_flight)
		go_for(s, ROUND_NS);
	ask_for_a_draft(drafter, 4);
	look_ahead(s);
	go_slowly_till_has(s, reader);
	go_slowly_till_has(s, drafter);
	assert_int_equal(end_of(drafter).status, 0);
	school_free(s);
}

/* Another takes the pages where its next chunk was to lie. */
static void a_plan_whose_pages_another_has_is_made_anew(void **state)
{
	struct school *s = school_of_n(100);
	struct pupil *reader = join(s, 1, 0, 1), *other = &s->pupils[0];
	struct plan_ahead *ahead = &s->h.sched->passes.plans->ahead;
	uint64_t before;
	struct store_seq *seq;

	(void)state;
	stop_all(s);
	before = n_made_in_passes(s);
	ask(reader, 2 * MAX_ROWS);
	while (!s->h.sched->passes.in_flight)
		go_round(s);
	while (plan_ahead_is_making(ahead))
		usleep(100);
	assert_true(plan_ahead_is_made(ahead));
	seq = handle_seq(&s->h.sched->core.seqs, other->seq)->store;
	assert_int_equal(store_seq_extend(seq, (uint32_t[100]){0}, 100, false, world.now_ns), 0);
	go_slowly_till_has(s, reader);
	assert_int_equal(n_made_in_passes(s), before + 2);
	store_seq_void(seq, world.now_ns);
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
		cmocka_unit_test(nothing_is_foreseen_of_who_does_not_come_again),
		cmocka_unit_test(a_long_prompt_goes_by_plans_made_meanwhile),
		cmocka_unit_test(a_long_prompt_beside_others_goes_by_plans_made_meanwhile),
		cmocka_unit_test(prompts_of_many_go_by_plans_made_meanwhile),
		cmocka_unit_test(a_newcomers_prompt_goes_by_a_plan_made_meanwhile),
		cmocka_unit_test(a_path_that_ends_in_the_middle_of_anothers_is_planned_as_it_is),
		cmocka_unit_test(a_draft_goes_by_no_plan_that_took_it_for_tokens),
		cmocka_unit_test(a_plan_whose_pages_another_has_is_made_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
