/*
 * pass_charge_test.c - whose the time is that others have waited before a pass: what sessions are
 * charged is looked at, by a clock of the test's own.
 */
#include "school.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N 8u

/* Two sessions; the second comes with each of its tokens so much later. Returns how much more of
 * the backend's time it has had. */
static double late_ones_more_ns(uint64_t user, uint64_t late_ns, uint32_t n_tokens)
{
	struct school *s = school_new(0.01 * MS);
	struct pupil *a, *b;
	double more_ns;

	school_start(s);
	a = join(s, 1, 0, 1);
	b = join(s, user, 0, 1);
	for (uint32_t token = 0; token < n_tokens; token++) {
		ask(a, 1);
		go_for(s, late_ns);
		ask(b, 1);
		go_till_all_have(s);
	}
	assert_int_equal(world.n_passes, n_tokens);
	more_ns = had_ns(b) - had_ns(a);
	school_free(s);
	return more_ns;
}

/* Of the first token nobody knows that it is late. */
static void a_wait_of_others_is_his_who_is_waited_for(void **state)
{
	double more_ns = late_ones_more_ns(2, 500 * US, 40);

	(void)state;
	assert_true(more_ns >= 39 * 0.49 * MS);
	assert_true(more_ns <= 40 * 0.52 * MS);
	more_ns = late_ones_more_ns(1, 500 * US, 40);
	assert_true(more_ns >= -0.01 * MS && more_ns <= 0.01 * MS);
}

/* Of three users the second is late with each token and the third, who has had none for long, comes
 * with the last one, as it does, right before or behind it. Returns how much more of the backend's
 * time this pupil had of the last token than the first. */
static double last_ones_more_ns(bool before, uint32_t pupil)
{
	struct school *s = school_new(0.01 * MS);
	struct pupil *a, *late, *chance;
	double more_ns = 0;

	school_start(s);
	a = join(s, 1, 0, 1);
	late = join(s, 2, 0, 1);
	chance = join(s, 3, 0, 1);
	go_for(s, 20000 * US);
	for (uint32_t token = 0; token < 10; token++) {
		more_ns = had_ns(a) - had_ns(&s->pupils[pupil]);
		ask(a, 1);
		go_for(s, 500 * US);
		if (token == 9 && before)
			ask(chance, 1);
		ask(late, 1);
		if (token == 9 && !before)
			ask(chance, 1);
		go_till_all_have(s);
	}
	assert_int_equal(world.n_passes, 10);
	more_ns += had_ns(&s->pupils[pupil]) - had_ns(a);
	school_free(s);
	return more_ns;
}

static void who_comes_by_chance_pays_for_no_wait_for_another(void **state)
{
	(void)state;
	for (int before = 0; before < 2; before++) {
		double late_ns = last_ones_more_ns(before, 1);
		double chance_ns = last_ones_more_ns(before, 2);

		assert_true(late_ns >= 0.49 * MS && late_ns <= 0.52 * MS);
		assert_true(chance_ns >= -0.01 * MS && chance_ns <= 0.01 * MS);
	}
}

/* Three begin anew, one after the other. Each is waited for by those before it. */
static void newcomers_pay_for_the_wait_until_they_come(void **state)
{
	struct school *s = school_new(0.01 * MS);
	double first_ns, second_ns, third_ns;

	(void)state;
	school_start(s);
	for (uint32_t i = 1; i <= 4; i++)
		join(s, i, 0, 1);
	go_for(s, 20000 * US);
	for (uint32_t i = 0; i < 3; i++) {
		begin_anew(&s->pupils[i], 8);
		go_for(s, i < 2 ? 300 * US : 0);
	}
	go_till_all_have(s);
	assert_int_equal(world.n_passes, 1);
	first_ns = had_ns(&s->pupils[0]);
	second_ns = had_ns(&s->pupils[1]) - first_ns;
	third_ns = had_ns(&s->pupils[2]) - first_ns;
	assert_true(second_ns >= 0.28 * MS && second_ns <= 0.32 * MS);
	assert_true(third_ns >= 0.77 * MS && third_ns <= 0.82 * MS);
	school_free(s);
}

/* Two begin anew, again and again, the second a little later: its coming makes the first one wait
 * for a third, who never comes. Returns as above. */
static double late_beginners_more_ns(uint64_t user, uint64_t late_ns, uint32_t n)
{
	struct school *s = school_new(0.01 * MS);
	double more_ns;

	school_start(s);
	for (uint32_t i = 0; i < 3; i++)
		join(s, i == 0 ? 1 : user, 0, 1);
	go_for(s, 20000 * US);
	for (uint32_t i = 0; i < n; i++) {
		begin_anew(&s->pupils[0], 8);
		go_for(s, late_ns);
		begin_anew(&s->pupils[1], 8);
		go_till_all_have(s);
	}
	assert_int_equal(world.n_passes, n);
	more_ns = had_ns(&s->pupils[1]) - had_ns(&s->pupils[0]);
	school_free(s);
	return more_ns;
}

static void a_wait_for_newcomers_is_the_last_ones(void **state)
{
	double more_ns = late_beginners_more_ns(2, 300 * US, 40);

	(void)state;
	assert_true(more_ns >= 40 * 0.77 * MS);
	assert_true(more_ns <= 40 * 0.82 * MS);
	more_ns = late_beginners_more_ns(1, 300 * US, 40);
	assert_true(more_ns >= -0.1 * MS && more_ns <= 0.1 * MS);
}

/* Of the tokens that user 2's sessions might have, each leaves out the third. Returns what user 1's
 * have waited. */
static uint64_t wait_for_them_who_often_stay_away(struct school *s, uint32_t n_tokens)
{
	struct pupil *a = &s->pupils[0];
	uint64_t waited_ns = 0;

	for (uint32_t token = 0; token < n_tokens; token++) {
		uint64_t since_ns = world.now_ns;
		uint32_t n_before = world.n_passes;

		ask(a, 1);
		for (uint32_t i = 1; i < s->n; i++)
			if ((token + i) % 3 != 2)
				ask(&s->pupils[i], 1);
		while (world.n_passes == n_before)
			go_for(s, ROUND_NS);
		waited_ns += world.now_ns - since_ns;
		go_till_all_have(s);
	}
	return waited_ns;
}

static void who_is_waited_for_in_vain_is_so_seldom(void **state)
{
	struct school *s = school_new(0.01 * MS);
	uint64_t waited_ns;

	(void)state;
	school_start(s);
	join(s, 1, 0, 1);
	for (uint32_t i = 0; i < N; i++)
		join(s, 2, 0, 1);
	(void)wait_for_them_who_often_stay_away(s, 30);
	waited_ns = wait_for_them_who_often_stay_away(s, 100);
	assert_true((double)waited_ns <= 100 * (0.05 * FIXED_NS + 2 * ROUND_NS) + FIXED_NS);
	school_free(s);
}

static void has_one_alone(struct school *s, struct pupil *p)
{
	ask(p, 1);
	go_till_all_have(s);
}

/* He has a token, and then is a little late for one with another: do they have it together? */
static bool is_waited_for(struct school *s, struct pupil *a, struct pupil *late)
{
	uint32_t n_before;

	has_one_alone(s, late);
	n_before = world.n_passes;
	ask(a, 1);
	go_for(s, 300 * US);
	ask(late, 1);
	go_till_all_have(s);
	return world.n_passes - n_before == 1;
}

/* He comes in passes of his own. */
static void who_has_come_as_often_is_waited_for_again(void **state)
{
	struct school *s = school_new(0.01 * MS);
	struct pupil *a, *late;

	(void)state;
	school_start(s);
	a = join(s, 1, 0, 1);
	late = join(s, 2, 0, 1);
	assert_true(is_waited_for(s, a, late));
	for (uint32_t i = 0; i < 3; i++) {
		has_one_alone(s, late);
		has_one_alone(s, a); /* who has waited in vain */
	}
	assert_false(is_waited_for(s, a, late));
	for (uint32_t i = 0; i < 100; i++)
		has_one_alone(s, late);
	assert_true(is_waited_for(s, a, late));
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_of_others_is_his_who_is_waited_for),
		cmocka_unit_test(who_comes_by_chance_pays_for_no_wait_for_another),
		cmocka_unit_test(newcomers_pay_for_the_wait_until_they_come),
		cmocka_unit_test(a_wait_for_newcomers_is_the_last_ones),
		cmocka_unit_test(who_is_waited_for_in_vain_is_so_seldom),
		cmocka_unit_test(who_has_come_as_often_is_waited_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
