/*
 * pass_company_test.c - whose tokens a pass waits for, so that they go together: passes and rows
 * are counted, by a clock of the test's own.
 */
#include "school.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N 8u
#define MOST_WINDOW_US 1000000u /* that the key batch_window_max_us takes */

/* N sessions that have not asked for anything. */
static struct school *school_of_newcomers(double row_ns)
{
	struct school *s = school_new(row_ns);

	school_start(s);
	for (uint32_t i = 0; i < N; i++)
		join(s, 1, 0, 1);
	return s;
}

/* Each has had a token. */
static struct school *school_of_n(double row_ns)
{
	struct school *s = school_of_newcomers(row_ns);

	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 1);
	go_till_all_have(s);
	return s;
}

/* Each asks so long after the one before, for n tokens. */
static void ask_apart(struct school *s, uint32_t n, uint64_t apart_ns)
{
	for (uint32_t i = 0; i < N; i++) {
		ask(&s->pupils[i], n);
		go_for(s, apart_ns);
	}
}

static void prompts_of_several_go_together(void **state)
{
	struct school *s = school_of_newcomers(0.01 * MS);
	uint64_t opened_ns = world.now_ns;

	(void)state;
	ask_apart(s, MAX_ROWS / N, 50 * US);
	assert_true(world.now_ns < opened_ns + 1000 * US);
	go_till_all_have(s);
	assert_int_equal(world.n_passes, 1);
	assert_int_equal(world.n_rows, MAX_ROWS);
	school_free(s);
}

/* N sessions that have had nothing for long. */
static struct school *school_of_idle(void)
{
	struct school *s = school_of_newcomers(0.01 * MS);

	go_for(s, 20000 * US);
	return s;
}

/* The first has his before any other has opened a sequence. */
static void who_begin_at_once_go_together(void **state)
{
	struct school *s = school_of_idle();

	(void)state;
	for (uint32_t i = 0; i < N; i++) {
		begin_anew(&s->pupils[i], MAX_ROWS / N);
		go_for(s, 200 * US);
	}
	go_till_all_have(s);
	assert_int_equal(world.n_passes, 1);
	assert_int_equal(world.n_rows, MAX_ROWS);
	school_free(s);
}

/* 200 rows of 0.2 ms are two passes, and what is left for the second fills none. */
static void who_fills_a_pass_waits_for_nobody(void **state)
{
	struct school *s = school_of_newcomers(0.2 * MS);

	(void)state;
	go_for(s, 20000 * US);
	begin_anew(&s->pupils[0], 200);
	go_for(s, ROUND_NS);
	assert_int_equal(world.n_passes, 1);
	while (world.n_passes < 2) {
		assert_true(world.now_ns <= world.end_ns + 2 * ROUND_NS);
		go_for(s, ROUND_NS);
	}
	go_till_all_have(s);
	school_free(s);
}

/* Prompts of a pass each: who has had his may come no more, and is not waited for as if he were
 * late. */
static void prompts_do_not_wait_for_who_has_had_his(void **state)
{
	struct school *s = school_of_newcomers(0.1 * MS);
	uint64_t since_ns;
	double ran_ns;

	(void)state;
	go_for(s, 20000 * US);
	since_ns = world.now_ns;
	ran_ns = world.ran_ns;
	for (uint32_t i = 0; i < N; i++)
		begin_anew(&s->pupils[i], MAX_ROWS);
	go_till_all_have(s);
	ran_ns = world.ran_ns - ran_ns;
	assert_true(world.now_ns - since_ns < (uint64_t)ran_ns + N * 100 * US);
	school_free(s);
}

/* Between passes of 5.1 ms n begin at once, again and again, and nobody else does. */
static void begin_for_themselves(uint32_t n)
{
	struct school *s = school_of_idle();
	uint64_t waited_ns = 0, since_ns = world.now_ns;

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t n_before = world.n_passes;
		uint64_t asked_ns = world.now_ns;

		for (uint32_t k = 0; k < n; k++)
			begin_anew(&s->pupils[k], 8);
		while (world.n_passes == n_before)
			go_for(s, ROUND_NS);
		waited_ns += world.now_ns - asked_ns - ROUND_NS;
		go_till_all_have(s);
	}
	assert_true(waited_ns > 0);
	assert_true((double)waited_ns <= 0.05 * (double)(world.now_ns - since_ns));
	school_free(s);
}

static void who_begin_for_themselves_wait_seldom(void **state)
{
	(void)state;
	begin_for_themselves(1);
	begin_for_themselves(2);
	begin_for_themselves(N - 1);
}

/* No session but his has the model; or all have something to wait for. */
static void whom_nobody_can_join_waits_for_nobody(void **state)
{
	struct school *s = school_new(0.01 * MS);
	struct pupil *p;

	(void)state;
	school_start(s);
	join(s, 2, 0, 2);
	p = join(s, 1, 0, 1);
	go_for(s, 20000 * US);
	begin_anew(p, 8);
	go_for(s, ROUND_NS);
	assert_int_equal(world.n_passes, 1);
	go_till_all_have(s);
	school_free(s);
}

/* Who is in the midst of his text. */
static void who_goes_on_does_not_wait_for_newcomers(void **state)
{
	struct school *s = school_of_idle();
	uint32_t n_before;

	(void)state;
	for (uint32_t token = 0; token < 3; token++) {
		ask(&s->pupils[0], 1);
		go_till_all_have(s);
	}
	go_for(s, 20000 * US);
	n_before = world.n_passes;
	ask(&s->pupils[0], 1);
	go_for(s, ROUND_NS);
	assert_int_equal(world.n_passes, n_before + 1);
	go_till_all_have(s);
	school_free(s);
}

/* They have had their prompts together, and meet at the first token. */
static void first_tokens_behind_prompts_go_together(void **state)
{
	struct school *s = school_of_newcomers(0.001 * MS);
	uint32_t n_before;

	(void)state;
	ask_apart(s, MAX_ROWS / N, 20 * US);
	go_till_all_have(s);
	n_before = world.n_passes;
	ask_apart(s, 1, 20 * US);
	go_till_all_have(s);
	assert_int_equal(world.n_passes, n_before + 1);
	assert_int_equal(world.n_rows, N);
	school_free(s);
}

/* All others usually come at once. */
static void one_is_late_once(double row_ns, uint64_t late_ns)
{
	struct school *s = school_of_n(row_ns);

	for (uint32_t token = 0; token < 20; token++) {
		uint32_t n_before = world.n_passes;

		for (uint32_t i = 1; i < N; i++)
			ask(&s->pupils[i], 1);
		go_for(s, token == 10 ? late_ns : 20 * US);
		assert_int_equal(world.n_passes, n_before);
		ask(&s->pupils[0], 1);
		go_till_all_have(s);
		assert_int_equal(world.n_passes, n_before + 1);
	}
	school_free(s);
}

/* By some 6 % of the pass that he would wait for, of which the weights are all, or a half. */
static void one_that_is_late_once_goes_with_the_others(void **state)
{
	(void)state;
	one_is_late_once(0.01 * MS, 300 * US);
	one_is_late_once(0.65 * MS, 600 * US);
}

/* All but the first ask for a token; until their pass begins. */
static void pass_without_first(struct school *s)
{
	uint32_t n_before = world.n_passes;

	for (uint32_t i = 1; i < N; i++)
		ask(&s->pupils[i], 1);
	while (world.n_passes == n_before)
		go_for(s, ROUND_NS);
}

/* One of N is worth no more of the others' time than a pass saved, of which they are N - 1. */
static void who_stays_away_is_waited_for_once_and_not_for_long(void **state)
{
	struct school *s = school_of_n(0.01 * MS);
	uint64_t most_ns[] = {(uint64_t)(FIXED_NS / (N - 1)), 0};

	(void)state;
	for (uint32_t token = 0; token < 2; token++) {
		uint64_t since_ns = world.now_ns;

		pass_without_first(s);
		assert_true(world.now_ns <= since_ns + most_ns[token] + 2 * ROUND_NS);
		go_till_all_have(s);
	}
	school_free(s);
}

/* All but one stay away from a pass that takes five seconds. */
static void nobody_is_waited_for_longer_than_the_key_says(void **state)
{
	struct school *s = school_new(0.01 * MS);
	uint64_t since_ns;
	uint32_t n_before;

	(void)state;
	world.fixed_ns = 5000 * MS;
	s->h.config.batch_window_max_us = MOST_WINDOW_US;
	school_start(s);
	for (uint32_t i = 0; i < N; i++)
		ask(join(s, 1, 0, 1), 1);
	world.instant = true;
	go_till_all_have(s);
	since_ns = world.now_ns;
	n_before = world.n_passes;
	ask(&s->pupils[0], 1);
	while (world.n_passes == n_before)
		go_for(s, ROUND_NS);
	assert_in_range((world.now_ns - since_ns) / US, MOST_WINDOW_US,
			MOST_WINDOW_US + 2 * ROUND_NS / US);
	school_free(s);
}

/* Whoever usually thinks for longer than a pass is not waited for. */
static void who_is_always_late_keeps_nobody_waiting(void **state)
{
	struct school *s = school_of_n(0.01 * MS);
	struct pupil *slow = &s->pupils[0];
	uint64_t ask_ns = 0, longest_ns = 0;

	(void)state;
	for (uint32_t token = 0; token < 100; token++) {
		uint64_t since_ns = world.now_ns;

		pass_without_first(s);
		if (token >= 50 && world.now_ns - since_ns > longest_ns)
			longest_ns = world.now_ns - since_ns;
		for (uint32_t i = 1; i < N; i++)
			while (!has(&s->pupils[i]))
				go_for(s, ROUND_NS);
		if (has(slow) && !ask_ns)
			ask_ns = world.now_ns + (uint64_t)(7 * MS);
		if (ask_ns && world.now_ns >= ask_ns) {
			ask(slow, 1);
			ask_ns = 0;
		}
	}
	assert_true(longest_ns <= 2 * ROUND_NS);
	go_till_all_have(s);
	school_free(s);
}

/* All of school_of_n ask; their pass begins at once. */
static void nobody_is_waited_for(struct school *s)
{
	uint32_t n_before = world.n_passes;

	for (uint32_t i = 0; i < N; i++)
		ask(&s->pupils[i], 1);
	go_for(s, 2 * ROUND_NS);
	assert_int_equal(world.n_passes, n_before + 1);
	go_till_all_have(s);
}

static void an_old_sequence_without_tokens_keeps_nobody_waiting(void **state)
{
	struct school *s = school_of_n(0.01 * MS);

	(void)state;
	join(s, 1, 0, 1);
	go_for(s, 2000 * US);
	nobody_is_waited_for(s);
	school_free(s);
}

/* Nor is it, where it is closed and opened anew, and anew. */
static void who_opens_and_never_comes_keeps_nobody_waiting(void **state)
{
	struct school *s = school_of_n(0.01 * MS);
	struct pupil *idle = join(s, 2, 0, 1);
	uint32_t ids[] = {3, 4, 5};
	struct store_match match;

	(void)state;
	go_for(s, 2000 * US);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(client_close(&idle->c, idle->seq), 0);
		assert_int_equal(client_open(&idle->c, ids, 3, &idle->seq, &match), 0);
		nobody_is_waited_for(s);
	}
	school_free(s);
}

/* Before it a sequence was opened between two passes alone. */
static void a_sequence_is_opened_beside_a_pass(void **state)
{
	struct school *s = school_of_n(0.01 * MS);
	struct pupil *p = &s->pupils[0];
	uint32_t ids[] = {3, 4, 5}, n_before = world.n_passes;
	struct store_match match;
	uint64_t seq;

	(void)state;
	ask(&s->pupils[1], MAX_ROWS);
	while (world.n_passes == n_before)
		go_for(s, ROUND_NS);
	assert_true(s->h.sched->passes.in_flight);
	assert_int_equal(client_open(&p->c, ids, 3, &seq, &match), 0);
	assert_true(s->h.sched->passes.in_flight);
	p->seq = seq;
	ask(p, 3);
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, 0);
	assert_int_equal(world.n_passes, n_before + 2);
	school_free(s);
}

/* Two of a model meet, and one comes back; the other is waited for, unless somebody of another
 * model would wait too. */
static void company_is_waited_for_at_nobody_elses_cost(void **state)
{
	struct school *s = school_new(0.1 * MS);
	struct pupil *a, *b, *c;

	(void)state;
	school_start(s);
	a = join(s, 1, 1, 1);
	b = join(s, 1, 1, 1);
	c = join(s, 2, 0, 2);
	go_passes(s, 20);
	a->again = b->again = 0;
	while (!has(a) || !has(b) || s->h.sched->passes.in_flight)
		go_round(s);
	ask(a, 1);
	sched_round(s->h.sched);
	assert_false(s->h.sched->passes.in_flight);
	ask(c, 1);
	sched_round(s->h.sched);
	assert_true(s->h.sched->passes.in_flight);
	while (!has(a) || !has(c))
		go_round(s);
	school_free(s);
}

/* A plan is made once, whoever comes first with a token. */
static void the_same_sequences_have_the_same_plan(void **state)
{
	struct school *s = school_of_n(0.01 * MS);
	uint64_t n_plans = 0;

	(void)state;
	for (uint32_t token = 0; token < 20; token++) {
		for (uint32_t i = 0; i < N; i++) {
			ask(&s->pupils[token % 2 ? i : N - 1 - i], 1);
			go_for(s, ROUND_NS);
		}
		go_till_all_have(s);
		if (token == 2)
			n_plans = s->h.sched->passes.plans->cache.last_id;
	}
	assert_int_equal(s->h.sched->passes.plans->cache.last_id, n_plans);
	school_free(s);
}

/* Thirty of a program, sixteen sequences each, and one of another, who is returned. */
static struct pupil *many_and_one_of_another(struct school *s)
{
	struct pupil *other;

	school_start(s);
	for (uint32_t i = 0; i < 30; i++)
		join(s, 1, 16, 1);
	other = join(s, 2, 1, 2);
	go_passes(s, 4);
	return other;
}

/* Whoever waits for another program waits for all of a pass. */
static void decode_of_many_is_no_longer_than_a_budget_beside_another_program(void **state)
{
	struct school *s = school_new(5 * MS);
	struct pupil *other = many_and_one_of_another(s);

	(void)state;
	world.longest_ns = 0;
	go_passes(s, 60);
	assert_true(other->c.session->decode_steps > 20);
	assert_true(world.longest_ns <= FIXED_NS + BUDGET_NS + 5 * MS);
	school_free(s);
}

/* A decode that is all right but for ids that are nobody's. */
static void ask_for_nonsense(struct pupil *p)
{
	struct {
		struct abi_decode head;
		struct abi_decode_seq seq;
		uint32_t ids[4];
	} body = {.seq = {.seq = p->seq, .n_new = 1}};

	client_submit(&p->c, (struct abi_entry){.kind = ABI_DECODE, .count = 1}, &body,
		      sizeof(body));
}

/* They cost nothing. */
static void entries_that_are_refused_shorten_nobodys_passes(void **state)
{
	struct school *s = school_new(5 * MS);
	struct pupil *other = many_and_one_of_another(s);

	(void)state;
	other->again = 0;
	go_till_all_have(s);
	go_for(s, 2000000 * US);
	world.longest_ns = 0;
	for (uint32_t i = 0; i < 20; i++) {
		ask_for_nonsense(other);
		go_passes(s, 1);
		assert_int_equal(end_of(other).reason, ABI_BAD_BODY);
	}
	assert_true(world.longest_ns > FIXED_NS + 3 * BUDGET_NS);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decode_of_many_is_no_longer_than_a_budget_beside_another_program),
		cmocka_unit_test(entries_that_are_refused_shorten_nobodys_passes),
		cmocka_unit_test(prompts_of_several_go_together),
		cmocka_unit_test(who_begin_at_once_go_together),
		cmocka_unit_test(who_fills_a_pass_waits_for_nobody),
		cmocka_unit_test(prompts_do_not_wait_for_who_has_had_his),
		cmocka_unit_test(who_begin_for_themselves_wait_seldom),
		cmocka_unit_test(whom_nobody_can_join_waits_for_nobody),
		cmocka_unit_test(who_goes_on_does_not_wait_for_newcomers),
		cmocka_unit_test(first_tokens_behind_prompts_go_together),
		cmocka_unit_test(one_that_is_late_once_goes_with_the_others),
		cmocka_unit_test(who_stays_away_is_waited_for_once_and_not_for_long),
		cmocka_unit_test(nobody_is_waited_for_longer_than_the_key_says),
		cmocka_unit_test(who_is_always_late_keeps_nobody_waiting),
		cmocka_unit_test(an_old_sequence_without_tokens_keeps_nobody_waiting),
		cmocka_unit_test(who_opens_and_never_comes_keeps_nobody_waiting),
		cmocka_unit_test(a_sequence_is_opened_beside_a_pass),
		cmocka_unit_test(company_is_waited_for_at_nobody_elses_cost),
		cmocka_unit_test(the_same_sequences_have_the_same_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
