/*
 * pass_held_test.c - users of several programs on a backend that holds the scheduler's thread: who
 * asks again meanwhile is heard of when a segment has ended. Each has his part of the backend's
 * time all the same, as far as he asks for it soon.
 */
#include "school.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define PLACES 200u
#define ROW_NS (0.3 * MS)
#define SHORT_NS (2 * MS)
#define OWN_NS (SHORT_NS + ROW_NS) /* a pass of one token */
#define FAIR 0.45
#define N_MANY 30u
#define MANYS_LAG_NS (60 * US)
#define LONG_LAG_NS (3000 * US) /* beyond what anybody is waited for */

/* A pupil who asks for a token so long after he has had the last one. */
struct asker {
	struct pupil *pupil;
	uint64_t lag_ns;
	uint64_t asks_ns; /* 0: he has asked */
	uint32_t n;
	uint32_t n_trims, n_forks; /* of its sequence, each time before */
};

/* The first is user 1, the others user 2. */
struct course {
	struct school *school;
	struct asker askers[1 + N_MANY];
	double all_ns, one_ns; /* what they have had when it was looked at last */
	double ran_ns;
	uint64_t since_ns, waited_ns;
};

static struct school *start(void)
{
	struct school *s = school_new(ROW_NS);

	world.n_places = PLACES;
	world.fixed_ns = SHORT_NS;
	s->program.holds = true;
	s->h.config.max_seqs = 4096; /* forks stay */
	school_start(s);
	return s;
}

static void course_start(struct course *c, uint64_t lag_ns)
{
	*c = (struct course){.school = start()};
	for (uint32_t i = 0; i <= N_MANY; i++) {
		uint32_t user = i == 0 ? 1 : 2;

		c->askers[i].pupil = join(c->school, user, 0, user);
		c->askers[i].lag_ns = i == 0 ? lag_ns : MANYS_LAG_NS;
		ask(c->askers[i].pupil, 1);
	}
}

static void ask_again(struct asker *a, uint64_t had_ns, uint64_t heard_ns)
{
	if (a->asks_ns == 0 && has(a->pupil)) {
		assert_int_equal(end_of(a->pupil).status, 0);
		a->asks_ns = had_ns + a->lag_ns;
		a->n++;
	}
	if (a->asks_ns == 0 || a->asks_ns > heard_ns)
		return;
	a->asks_ns = 0;
	for (uint32_t i = 0; i < a->n_trims; i++)
		client_submit(&a->pupil->c,
			      (struct abi_entry){.kind = ABI_TRIM, .seq = a->pupil->seq}, NULL, 0);
	for (uint32_t i = 0; i < a->n_forks; i++)
		client_submit(&a->pupil->c,
			      (struct abi_entry){.kind = ABI_FORK, .seq = a->pupil->seq}, NULL, 0);
	ask(a->pupil, 1);
}

static void go(struct course *c, double for_ns)
{
	uint64_t end_ns = world.now_ns + (uint64_t)for_ns;

	while (world.now_ns < end_ns) {
		uint64_t at_ns = world.now_ns, heard_ns;

		sched_round(c->school->h.sched);
		heard_ns = world.end_ns > at_ns ? world.end_ns : at_ns + ROUND_NS;
		for (uint32_t i = 0; i <= N_MANY; i++)
			ask_again(&c->askers[i], at_ns, heard_ns);
		world.now_ns = heard_ns;
	}
}

static void look(struct course *c)
{
	c->all_ns = 0;
	for (uint32_t i = 0; i <= N_MANY; i++) {
		c->all_ns += had_ns(c->askers[i].pupil);
		c->askers[i].n = 0;
	}
	c->one_ns = had_ns(c->askers[0].pupil);
	c->ran_ns = world.ran_ns;
	c->since_ns = world.now_ns;
	c->waited_ns = c->school->h.sched->core.stats.turn_wait_ns;
}

/* Of what the backend has done since then. */
static double share_of_one(const struct course *c)
{
	return c->askers[0].n * OWN_NS / (world.ran_ns - c->ran_ns);
}

static double busy_part(const struct course *c)
{
	return (world.ran_ns - c->ran_ns) / (double)(world.now_ns - c->since_ns);
}

/* What is seen before all know that there are others counts for nothing. */
static void go_and_look(struct course *c, double first_ns)
{
	go(c, first_ns);
	look(c);
	go(c, 4000 * MS);
	print_message("one of two users: %.3f of the time, which is %.3f of all\n", share_of_one(c),
		      busy_part(c));
}

static void who_asks_for_a_token_at_a_time_has_half(void **state)
{
	static const uint64_t lags_ns[] = {5 * US, 60 * US, 400 * US};

	(void)state;
	for (uint32_t i = 0; i < sizeof(lags_ns) / sizeof(*lags_ns); i++) {
		struct course c;

		course_start(&c, lags_ns[i]);
		go_and_look(&c, 500 * MS);
		assert_true(share_of_one(&c) >= FAIR);
		assert_true(share_of_one(&c) <= 1 - FAIR);
		school_free(c.school);
	}
}

/* A look serves one entry of a lane that may be long: what is behind it has come as well. */
static void who_trims_and_forks_before_each_token_has_half(void **state)
{
	static const uint32_t n[][2] = {{1, 0}, {2, 0}, {1, 1}, {4, 0}};

	(void)state;
	for (uint32_t i = 0; i < sizeof(n) / sizeof(*n); i++) {
		struct course c;

		course_start(&c, 60 * US);
		c.askers[0].n_trims = n[i][0];
		c.askers[0].n_forks = n[i][1];
		go_and_look(&c, 500 * MS);
		assert_true(share_of_one(&c) >= FAIR);
		school_free(c.school);
	}
}

/* What a backend does that holds nobody is looked at in rounds of its own. */
static void only_who_is_held_is_deaf(void **state)
{
	(void)state;
	for (int holds = 0; holds < 2; holds++) {
		struct school *s = start();

		s->program.holds = holds;
		join(s, 1, 10, 1);
		for (int i = 0; world.n_passes == 0; i++) {
			assert_true(i < 1000);
			assert_int_equal(s->h.sched->core.deaf_since_ns, 0);
			go_round(s);
		}
		assert_int_equal(s->h.sched->core.deaf_since_ns > 0, holds);
		school_free(s);
	}
}

static int take_a_while(struct sched *s, struct sched_request *request)
{
	(void)s;
	(void)request;
	world.now_ns += (uint64_t)(3 * MS);
	return 0;
}

/* Who comes while requests are served has come behind the last look. */
static void what_is_served_is_behind_the_last_look(void **state)
{
	struct school *s = start();
	struct sched_request one = {.serve = take_a_while}, other = one;
	uint64_t begun_ns = world.now_ns;

	(void)state;
	ask(join(s, 1, 0, 1), 10);
	sched_post(s->h.sched, &one);
	sched_post(s->h.sched, &other);
	sched_round(s->h.sched);
	assert_int_equal(world.n_passes, 1);
	assert_true(world.now_ns >= begun_ns + 6 * MS);
	assert_true(s->h.sched->core.deaf_since_ns <= world.now_ns - 6 * MS);
	assert_ptr_equal(sched_reap(s->h.sched), &one);
	assert_ptr_equal(sched_reap(s->h.sched), &other);
	school_free(s);
}

/* The same beside prompts, and of prompts. */
static void each_of_two_has_half_of_tokens_and_of_prompts(void **state)
{
	static const uint32_t again[][2] = {{1, 10000}, {10000, 1}, {10000, 10000}};

	(void)state;
	for (uint32_t i = 0; i < sizeof(again) / sizeof(*again); i++) {
		struct school *s = start();
		struct pupil *one = join(s, 1, again[i][0], 1);
		double all_ns = 0;
		uint64_t end_ns = world.now_ns + (uint64_t)(2000 * MS);

		for (uint32_t k = 0; k < N_MANY; k++)
			join(s, 2, again[i][1], 2);
		while (world.now_ns < end_ns)
			go_round(s);
		for (uint32_t k = 0; k < s->n; k++)
			all_ns += had_ns(&s->pupils[k]);
		assert_true(had_ns(one) >= FAIR * all_ns && had_ns(one) <= (1 - FAIR) * all_ns);
		school_free(s);
	}
}

/* What he has had beside his tokens is no more than the backend was idle for. */
static void who_comes_sooner_pays_for_as_long_as_he_was_waited_for(void **state)
{
	struct course c;
	double idle_ns, more_ns, waited_ns;

	(void)state;
	course_start(&c, 400 * US);
	go_and_look(&c, 500 * MS);
	waited_ns = (double)(c.school->h.sched->core.stats.turn_wait_ns - c.waited_ns);
	idle_ns = (double)(world.now_ns - c.since_ns) - (world.ran_ns - c.ran_ns);
	more_ns = had_ns(c.askers[0].pupil) - c.one_ns - c.askers[0].n * OWN_NS;
	print_message("the backend idled for %.0f ms, of which %.0f are his\n", idle_ns / MS,
		      more_ns / MS);
	assert_true(idle_ns > 100 * MS);
	assert_true(more_ns <= idle_ns);
	assert_true(more_ns >= 0.9 * idle_ns);
	assert_true(waited_ns <= idle_ns && waited_ns >= 0.9 * more_ns);
	school_free(c.school);
}

/* Nobody knows when he came during others' segments: that is tried again. */
static void who_was_slow_once_is_waited_for_again(void **state)
{
	struct course c;

	(void)state;
	course_start(&c, LONG_LAG_NS);
	go_and_look(&c, 500 * MS);
	assert_true(share_of_one(&c) < FAIR);
	c.askers[0].lag_ns = 60 * US;
	go_and_look(&c, 2000 * MS);
	assert_true(share_of_one(&c) >= FAIR);
	school_free(c.school);
}

/* But not so often that the backend idles for it. */
static void who_is_slow_is_hardly_waited_for(void **state)
{
	struct course c;

	(void)state;
	course_start(&c, LONG_LAG_NS);
	go_and_look(&c, 500 * MS);
	assert_true(busy_part(&c) >= 0.99);
	school_free(c.school);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_asks_for_a_token_at_a_time_has_half),
		cmocka_unit_test(who_trims_and_forks_before_each_token_has_half),
		cmocka_unit_test(only_who_is_held_is_deaf),
		cmocka_unit_test(what_is_served_is_behind_the_last_look),
		cmocka_unit_test(each_of_two_has_half_of_tokens_and_of_prompts),
		cmocka_unit_test(who_comes_sooner_pays_for_as_long_as_he_was_waited_for),
		cmocka_unit_test(who_was_slow_once_is_waited_for_again),
		cmocka_unit_test(who_is_slow_is_hardly_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
