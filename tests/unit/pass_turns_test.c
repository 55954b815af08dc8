/*
 * pass_turns_test.c - users of several programs: nobody's tokens wait for all of another program's
 * pass, and each has his part of the backend's time.
 */
#include "school.h"

#include "daemon/program/held_program.h"
#include "daemon/sched/round.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEGMENT_NS (5 * MS)
#define PLACES 200u
#define ROW_NS (0.3 * MS)
#define SHORT_NS (2 * MS)
#define LONG_NS (1500 * MS)
#define OWN_NS (SHORT_NS + ROW_NS) /* a pass of one token */
#define PAUSE_NS UINT64_C(40000000)
#define LOOK_NS UINT64_C(100000)
#define LAG_NS UINT64_C(6000000) /* more than a segment */
#define FAIR 0.45
#define N_MEET 30u
#define N_PROMPT 100u

/* A pupil who asks for a token after the other, some time after he has had the last one: for less
 * than his part of the backend's time. */
struct waiter {
	struct pupil *pupil;
	uint64_t pause_ns; /* from one he has had to his asking for the next */
	uint64_t asked_ns, asks_ns; /* 0: he has asked */
	double longest_ns;
	uint32_t n;
};

static struct school *start(void)
{
	struct school *s = school_new(ROW_NS);

	world.n_places = PLACES;
	world.fixed_ns = SHORT_NS;
	school_start(s);
	return s;
}

static struct waiter waiter_of(struct pupil *pupil)
{
	ask(pupil, 1);
	return (struct waiter){.pupil = pupil, .pause_ns = PAUSE_NS, .asked_ns = world.now_ns};
}

static void look_at(struct waiter *w)
{
	double ns = (double)(world.now_ns - w->asked_ns);

	if (!has(w->pupil))
		return;
	if (w->asks_ns == 0) {
		assert_int_equal(end_of(w->pupil).status, 0);
		w->longest_ns = ns > w->longest_ns ? ns : w->longest_ns;
		w->asks_ns = world.now_ns + w->pause_ns;
		w->n++;
	}
	if (world.now_ns < w->asks_ns)
		return;
	w->asked_ns = world.now_ns;
	w->asks_ns = 0;
	ask(w->pupil, 1);
}

static void go(struct school *s, struct waiter *waiters, uint32_t n, double for_ns)
{
	uint64_t end_ns = world.now_ns + (uint64_t)for_ns;

	while (world.now_ns < end_ns) {
		for (uint32_t i = 0; i < n; i++)
			look_at(&waiters[i]);
		go_round(s);
	}
}

/* What is seen before all know that there are others counts for nothing. */
static void go_and_forget(struct school *s, struct waiter *waiters, uint32_t n)
{
	go(s, waiters, n, 500 * MS);
	for (uint32_t i = 0; i < n; i++) {
		waiters[i].longest_ns = 0;
		waiters[i].n = 0;
	}
}

/* A prompt of another program without end: a pass of it takes several segments. */
static void tokens_wait_for_a_segment_of_anothers_prompt(void **state)
{
	struct school *s = start();
	struct waiter w;

	(void)state;
	join(s, 1, 10000, 1);
	w = waiter_of(join(s, 2, 0, 2));
	go_and_forget(s, &w, 1);
	world.longest_ns = 0;
	go(s, &w, 1, 2000 * MS);
	assert_true(world.longest_ns > 3 * SEGMENT_NS);
	assert_true(w.n > 30);
	assert_true(w.longest_ns <= SEGMENT_NS + OWN_NS + 1 * MS);
	school_free(s);
}

/* The same beside many that decode. */
static void tokens_wait_for_a_segment_of_others_decode(void **state)
{
	struct school *s = start();
	struct waiter w;

	(void)state;
	for (uint32_t i = 0; i < 30; i++)
		join(s, 1, 4, 1);
	w = waiter_of(join(s, 2, 0, 2));
	go_and_forget(s, &w, 1);
	world.longest_ns = 0;
	go(s, &w, 1, 2000 * MS);
	assert_true(world.longest_ns > 3 * SEGMENT_NS);
	assert_true(w.longest_ns <= SEGMENT_NS + OWN_NS + 1 * MS);
	school_free(s);
}

/* A pass's longest segment, alone or beside who asks for a token of another program at a time: of
 * passes that take ten times as long. */
static double longest_segment_ns(uint32_t segment_ms, bool holds, bool others)
{
	double pass_ns = fmax(10 * segment_ms, 30) * MS, ns;
	struct school *s = school_new(pass_ns / MAX_ROWS);

	world.n_places = PLACES;
	world.fixed_ns = pass_ns / 2;
	s->program.holds = holds;
	s->h.config.segment_ms = segment_ms;
	school_start(s);
	join(s, 1, 10000, 1);
	if (others)
		join(s, 2, 1, 2);
	go(s, NULL, 0, 5 * pass_ns);
	world.longest_segment_ns = 0;
	go(s, NULL, 0, 5 * pass_ns);
	ns = world.longest_segment_ns;
	school_free(s);
	return ns;
}

static void segments_are_as_long_as_the_key_says(void **state)
{
	static const uint32_t some_ms[] = {1, 5, 12, 1000};

	(void)state;
	for (uint32_t i = 0; i < sizeof(some_ms) / sizeof(*some_ms); i++) {
		double most_ns = some_ms[i] * MS;

		assert_in_range(longest_segment_ns(some_ms[i], false, true), 0.5 * most_ns,
				most_ns);
		assert_in_range(longest_segment_ns(some_ms[i], true, false), most_ns, 2 * most_ns);
	}
	assert_true(longest_segment_ns(1, false, false) > 12 * MS);
}

/* What coppicectl status has of it. */
static void who_cuts_in_is_counted(void **state)
{
	struct school *s = start();
	const struct sched_status *stats = &s->h.sched->core.stats;
	struct waiter w;

	(void)state;
	join(s, 1, 10000, 1);
	go(s, NULL, 0, 500 * MS);
	assert_int_equal(stats->passes_cut_in, 0);
	w = waiter_of(join(s, 2, 0, 2));
	go(s, &w, 1, 2000 * MS);
	assert_in_range(stats->passes_cut_in, 30, w.n + 1);
	assert_int_equal(stats->pass_segments, world.n_segments);
	assert_int_equal(stats->pass_slot_waits, 0);
	school_free(s);
}

/* Three whose passes take long, and one who asks for a token at a time. */
static void tokens_wait_for_no_pass_of_three_other_programs(void **state)
{
	struct school *s = start();
	struct waiter w;

	(void)state;
	for (uint32_t user = 1; user <= 3; user++)
		join(s, user, 10000, user);
	w = waiter_of(join(s, 4, 0, 4));
	go_and_forget(s, &w, 1);
	go(s, &w, 1, 2000 * MS);
	assert_true(w.n > 30);
	assert_true(w.longest_ns <= SEGMENT_NS + OWN_NS + 1 * MS);
	school_free(s);
}

/* As many programs as can have rows under way, some more, and who asks for a token at a time: he
 * waits for the end of a pass, and of one for each who waits before him. */
static void go_on_beside(uint32_t n_more)
{
	struct school *s = start();
	uint32_t n_others = BACKEND_PROGRAMS_AT_ONCE + n_more;
	struct waiter w;

	for (uint32_t user = 1; user <= n_others; user++)
		join(s, user, 10000, user);
	w = waiter_of(join(s, n_others + 1, 0, n_others + 1));
	go_and_forget(s, &w, 1);
	go(s, &w, 1, 6000 * MS);
	for (uint32_t i = 0; i < n_others; i++)
		assert_true(s->pupils[i].c.session->tokens_computed > 300);
	print_message("beside %u others a token waits for %.1f ms, a pass takes %.1f\n", n_others,
		      w.longest_ns / MS, world.longest_ns / MS);
	assert_true(w.n > 30);
	assert_true(s->h.sched->core.stats.pass_slot_waits >= w.n);
	assert_true(w.longest_ns <= (1 + n_more) * world.longest_ns + SEGMENT_NS + OWN_NS + 1 * MS);
	school_free(s);
}

static void all_go_on_where_programs_are_more_than_go_at_once(void **state)
{
	(void)state;
	for (uint32_t n_more = 0; n_more <= 2; n_more++)
		go_on_beside(n_more);
}

/* Part of what all had that the pupils from first on had. */
static double share_of(const struct school *s, uint32_t first, uint32_t n)
{
	double all_ns = 0, ns = 0;

	for (uint32_t i = 0; i < s->n; i++) {
		all_ns += had_ns(&s->pupils[i]);
		ns += i >= first && i < first + n ? had_ns(&s->pupils[i]) : 0;
	}
	return ns / all_ns;
}

/* His own passes take longer than he is thought to be there: he is so from when they have ended,
 * and has his half of the time. */
static void who_had_a_long_pass_is_there_when_it_ends(void **state)
{
	struct school *s = school_new(10 * MS);
	struct waiter w;

	(void)state;
	world.n_places = 2000;
	world.fixed_ns = LONG_NS;
	school_start(s);
	join(s, 1, 10000, 1);
	w = waiter_of(join(s, 2, 0, 2));
	go_and_forget(s, &w, 1);
	go(s, &w, 1, 60 * LONG_NS);
	assert_true(share_of(s, 1, 1) >= FAIR);
	assert_true(w.longest_ns <= SEGMENT_NS + 2 * (LONG_NS + 10 * MS));
	school_free(s);
}

/* The scheduler hears of who comes while the backend is at work. */
static void go_on(struct school *s, struct waiter *waiters, uint32_t n, double for_ns)
{
	uint64_t end_ns = world.now_ns + (uint64_t)for_ns;

	for (; world.now_ns < end_ns; world.now_ns += LOOK_NS) {
		for (uint32_t i = 0; i < n; i++)
			look_at(&waiters[i]);
		for (uint32_t i = 0; i < s->n; i++)
			if (s->pupils[i].again && has(&s->pupils[i]))
				ask(&s->pupils[i], s->pupils[i].again);
		sched_round(s->h.sched);
	}
}

/* One session of a program beside thirty of another. */
static double share_of_one(uint32_t n_of_one, uint32_t n_of_many)
{
	struct school *s = start();
	double share;

	join(s, 1, n_of_one, 1);
	for (uint32_t i = 0; i < 30; i++)
		join(s, 2, n_of_many, 2);
	go_on(s, NULL, 0, 2000 * MS);
	share = share_of(s, 0, 1);
	print_message("%u tokens at a time beside 30 sessions of %u: %.3f of the time\n", n_of_one,
		      n_of_many, share);
	school_free(s);
	return share;
}

static void each_of_two_users_of_programs_has_half(void **state)
{
	static const uint32_t again[][2] = {{1, 1}, {10000, 1}, {1, 10000}, {10000, 10000}};

	(void)state;
	for (uint32_t i = 0; i < sizeof(again) / sizeof(*again); i++) {
		double share = share_of_one(again[i][0], again[i][1]);

		assert_true(share >= FAIR && share <= 1 - FAIR);
	}
}

/* Who met in a pass wait for each other, whose passes ever came between its segments. */
static void who_met_in_a_pass_that_was_cut_into_meet_again(void **state)
{
	struct school *s = start();
	struct waiter w[N_MEET + 1];
	uint64_t n_passes;
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i <= N_MEET; i++) {
		w[i] = waiter_of(join(s, 1 + i / N_MEET, 0, 1 + i / N_MEET));
		w[i].pause_ns = i < N_MEET ? LOOK_NS * (1 + i % 6) : 3 * SEGMENT_NS;
	}
	go_on(s, w, N_MEET + 1, 500 * MS);
	n_passes = s->h.sched->core.stats.passes;
	for (uint32_t i = 0; i <= N_MEET; i++)
		w[i].n = 0;
	go_on(s, w, N_MEET + 1, 2000 * MS);
	n_passes = s->h.sched->core.stats.passes - n_passes - w[N_MEET].n;
	for (uint32_t i = 0; i < N_MEET; i++)
		n += w[i].n;
	assert_true(w[N_MEET].n > 50);
	assert_true(n > (N_MEET - 1) * n_passes);
	school_free(s);
}

/* What another program's segments take is no part of what one decodes in. */
static void a_pass_that_cuts_in_twice_has_no_gap_between(void **state)
{
	struct school *s = start();
	const struct passes *p = &s->h.sched->passes;
	struct waiter w;
	uint32_t n = 0;

	(void)state;
	join(s, 1, 10000, 1);
	w = waiter_of(join(s, 2, 0, 2));
	w.pause_ns = SEGMENT_NS;
	go_and_forget(s, &w, 1);
	for (uint32_t i = 0; i < 1000; i++) {
		go(s, &w, 1, 1);
		if (p->n_under_way < 2)
			continue;
		assert_int_equal(p->now->gap_ns, 0);
		n++;
	}
	assert_true(n > 30);
	school_free(s);
}

/* A pass is under way, and the backend has nothing of it. */
static bool is_held_up(const struct school *s)
{
	return s->h.sched->passes.n_under_way > 0 && !s->h.sched->passes.in_flight;
}

/* Until a pass waits for user 2, who has asked for a token at a time for long. */
static void go_till_user_2_is_awaited(struct school *s)
{
	go_on(s, NULL, 0, 300 * MS);
	for (uint32_t i = 0; !is_held_up(s); i++) {
		assert_true(i < 100000);
		go_on(s, NULL, 0, 1);
	}
}

/* He has had less than who is away, and another program's pass is under way. */
static void who_cuts_in_does_not_wait_for_who_is_away(void **state)
{
	struct school *s = start();
	struct pupil *third;
	uint32_t n_before;

	(void)state;
	join(s, 1, 10000, 1);
	join(s, 2, 1, 2);
	third = join(s, 3, 0, 3);
	go_till_user_2_is_awaited(s);
	n_before = world.n_passes;
	ask(third, 1);
	sched_round(s->h.sched);
	assert_false(is_held_up(s));
	assert_int_equal(world.n_passes, n_before + 1);
	school_free(s);
}

/* For long; w comes again soon each time, and now and then, while he is away, somebody of whom
 * nobody has heard for a while asks for a prompt. */
static void nobody_is_awaited_beside(struct school *s, uint32_t n_passes, struct waiter *w,
				     struct pupil *other)
{
	const struct passes *p = &s->h.sched->passes;
	uint64_t asks_ns = world.now_ns;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 40000; i++) {
		go_on(s, w, 1, LOOK_NS);
		if (w->asks_ns && has(other) && world.now_ns > asks_ns) {
			ask(other, N_PROMPT);
			asks_ns = world.now_ns + 10 * PAUSE_NS;
		}
		n += p->n_under_way == n_passes && w->asks_ns;
		assert_false(p->n_under_way == n_passes && is_held_up(s));
	}
	assert_true(n > 100);
	school_free(s);
}

/* Who comes then cuts in nowhere. */
static void nobody_is_awaited_where_as_many_passes_are_under_way_as_may_be(void **state)
{
	struct school *s = start();
	struct waiter w;

	(void)state;
	s->h.config.batch_window_max_us = 3 * LAG_NS / US;
	for (uint32_t user = 1; user < BACKEND_PROGRAMS_AT_ONCE; user++)
		join(s, user, 10000, user);
	w = waiter_of(join(s, 5, 0, 5));
	w.pause_ns = LAG_NS;
	nobody_is_awaited_beside(s, BACKEND_PROGRAMS_AT_ONCE, &w, join(s, 6, 0, 6));
}

/* He waits for its end, too. */
static void nobody_is_awaited_whose_programs_pass_is_under_way(void **state)
{
	struct school *s = start();
	struct waiter w;

	(void)state;
	s->h.config.batch_window_max_us = 3 * LAG_NS / US;
	join(s, 1, 10000, 1);
	w = waiter_of(join(s, 2, 0, 2));
	w.pause_ns = LAG_NS;
	nobody_is_awaited_beside(s, 2, &w, join(s, 3, 0, 2));
}

/* He would only wait for himself: his passes go one after the other. */
static void a_users_other_program_does_not_cut_in(void **state)
{
	struct school *s = start();

	(void)state;
	join(s, 1, 10000, 1);
	join(s, 1, 1, 2);
	for (uint32_t i = 0; i < 2000; i++) {
		go_round(s);
		assert_true(s->h.sched->passes.n_under_way < 2);
	}
	assert_true(s->pupils[1].c.session->decode_steps > 10);
	school_free(s);
}

static void go_till_one_is_aside(struct school *s)
{
	for (uint32_t i = 0; s->h.sched->passes.n_under_way < 2; i++) {
		assert_true(i < 100000);
		go_round(s);
	}
}

/* What all passes had under way fails with it. */
static void a_backend_that_fails_fails_all_passes(void **state)
{
	struct school *s = start();
	struct pupil *p, *q;

	(void)state;
	p = join(s, 1, 0, 1);
	q = join(s, 2, 0, 2);
	ask(q, 1);
	go_till_all_have(s);
	ask(p, 10000);
	go_passes(s, 1);
	ask(q, 5000);
	go_till_one_is_aside(s);
	passes_fail(&s->h.sched->passes);
	assert_true(has(p) && has(q));
	assert_int_equal(end_of(p).status, -EIO);
	assert_int_equal(end_of(q).status, -EIO);
	assert_false(s->h.sched->passes.now->under_way);
	school_free(s);
}

/* A pass that fails while another waits for it leaves that as it is. */
static void a_pass_that_fails_fails_no_other(void **state)
{
	struct school *s = start();
	struct pupil *p, *q;

	(void)state;
	p = join(s, 1, 0, 1);
	q = join(s, 2, 0, 2);
	ask(q, 1);
	go_till_all_have(s);
	ask(p, 100);
	go_passes(s, 1);
	ask(q, 1);
	world.n_before_failure = world.n_passes;
	while (!has(q))
		go_round(s);
	assert_int_equal(end_of(q).status, -ENOMEM);
	assert_int_equal(end_of(q).where, 0);
	assert_false(has(p));
	world.n_before_failure = 0;
	go_till_all_have(s);
	assert_int_equal(end_of(p).status, 0);
	school_free(s);
}

/* While it is aside its sequence is closed: that waits for its end, and nothing is left. */
static void who_leaves_a_pass_that_is_aside_leaves_nothing(void **state)
{
	struct school *s = start();
	struct pupil *p, *q;

	(void)state;
	p = join(s, 1, 0, 1);
	q = join(s, 2, 5000, 2);
	go_passes(s, 3);
	ask(p, 5000);
	go_till_one_is_aside(s);
	world.instant = true;
	q->again = 0;
	assert_int_equal(client_close(&p->c, p->seq), 0);
	assert_int_equal(client_close(&q->c, q->seq), 0);
	world.instant = false;
	assert_int_equal(harness_status(&s->h).store.n_seqs, 0);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_wait_for_a_segment_of_anothers_prompt),
		cmocka_unit_test(tokens_wait_for_a_segment_of_others_decode),
		cmocka_unit_test(who_had_a_long_pass_is_there_when_it_ends),
		cmocka_unit_test(segments_are_as_long_as_the_key_says),
		cmocka_unit_test(who_cuts_in_is_counted),
		cmocka_unit_test(tokens_wait_for_no_pass_of_three_other_programs),
		cmocka_unit_test(all_go_on_where_programs_are_more_than_go_at_once),
		cmocka_unit_test(each_of_two_users_of_programs_has_half),
		cmocka_unit_test(who_met_in_a_pass_that_was_cut_into_meet_again),
		cmocka_unit_test(a_pass_that_cuts_in_twice_has_no_gap_between),
		cmocka_unit_test(who_cuts_in_does_not_wait_for_who_is_away),
		cmocka_unit_test(nobody_is_awaited_where_as_many_passes_are_under_way_as_may_be),
		cmocka_unit_test(nobody_is_awaited_whose_programs_pass_is_under_way),
		cmocka_unit_test(a_users_other_program_does_not_cut_in),
		cmocka_unit_test(a_backend_that_fails_fails_all_passes),
		cmocka_unit_test(a_pass_that_fails_fails_no_other),
		cmocka_unit_test(who_leaves_a_pass_that_is_aside_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
