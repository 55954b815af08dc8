/*
 * pass_awaited_test.c - what sessions compute themselves, while a pass waits for another user's
 * token: it waits no longer for that.
 */
#include "school_layers.h"

#include "daemon/sched/rest.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_KNOWN 20u /* tokens, after which it is known how soon the next one comes */
#define LAG_NS UINT64_C(500000)
#define N_PROMPT 64u

/* A user whose pass is under way, and one who asks for another program's tokens, one at a time. */
static struct school *start(void)
{
	struct school *s = school_new(0.1 * MS);

	world.batch_ns = LAYER_NS;
	world.fixed_ns = 1 * MS; /* a token is a segment */
	world.n_places = 1000;
	school_start(s);
	join(s, 1, 10000, 1);
	join(s, 2, 0, 2);
	return s;
}

static void go_till_has(struct school *s, struct other *o, const struct pupil *p)
{
	for (uint32_t i = 0; !has(p); i++) {
		assert_true(i < 100000);
		go_until(s, o, world.now_ns + 1);
	}
}

static void become_known(struct school *s, struct other *o)
{
	for (uint32_t i = 0; i < N_KNOWN; i++) {
		ask(&s->pupils[1], 1);
		go_till_has(s, o, &s->pupils[1]);
		go_until(s, o, world.now_ns + LAG_NS);
	}
}

/* Users have had so much more than each other, in this order. */
static void rank(struct school *s, struct sched_user *const *users, uint32_t n)
{
	struct sched_core *core = &s->h.sched->core;

	for (uint32_t i = 0; i < n; i++)
		users[i]->had_ns = core->most_had_ns + i * 1000 * MS;
	core->had_ns = users[0]->had_ns;
	core->most_had_ns = users[n - 1]->had_ns;
}

static struct sched_user *user_of(const struct client *c)
{
	return c->session->user;
}

/* While the backend has a token of user 2. */
static void go_into_a_pass_of_user_2(struct school *s)
{
	uint32_t n_passes = world.n_passes;

	ask(&s->pupils[1], 1);
	for (uint32_t i = 0; world.n_passes == n_passes; i++) {
		assert_true(i < 100000);
		go_until(s, NULL, world.now_ns + 1);
	}
}

/* The slice waits for user 4 alone, who is expected sooner than user 2. */
static void layers_wait_no_longer_than_for_whom_they_wait(void **state)
{
	struct school *s = start();
	struct sched *sched = s->h.sched;
	struct other slices, decodes;
	uint64_t done_ns;

	(void)state;
	other_join(&slices, s, 3);
	other_join(&decodes, s, 4);
	become_known(s, &decodes);
	struct sched_user *users[] = {user_of(&decodes.c), user_of(&slices.c),
				      user_of(&s->pupils[1].c), user_of(&s->pupils[0].c)};

	go_into_a_pass_of_user_2(s);
	rank(s, users, 4);
	other_ask_prompt(&slices, N_PROMPT);
	go_till_has(s, &decodes, &s->pupils[1]);
	while (!sched->batch.in_flight || sched->passes.in_flight)
		go_until(s, NULL, world.now_ns + 1);
	while (sched->batch.in_flight)
		go_until(s, NULL, world.now_ns + 1);
	done_ns = sched->core.now_ns;
	assert_false(sched->passes.in_flight);
	assert_in_range(rest_until_ns(sched), done_ns, done_ns + LAYER_NS);
	go_until(s, NULL, rest_until_ns(sched) + ROUND_NS);
	assert_true(sched->batch.in_flight);
	go_until(s, NULL, world.now_ns + 10 * LAG_NS); /* nobody waits any more */
	other_end(&slices);
	other_end(&decodes);
	school_free(s);
}

/* Of the pass's user: his segment is next, as his layers have just been. */
static void layers_and_passes_go_in_turns_behind_a_wait(void **state)
{
	struct school *s = start();
	struct sched *sched = s->h.sched;
	struct other layers;

	(void)state;
	other_join(&layers, s, 1);
	become_known(s, &layers);
	struct sched_user *users[] = {user_of(&s->pupils[1].c), user_of(&layers.c)};

	go_into_a_pass_of_user_2(s);
	rank(s, users, 2);
	go_till_has(s, &layers, &s->pupils[1]);
	while (!sched->batch.in_flight)
		go_until(s, &layers, world.now_ns + 1);
	while (sched->batch.in_flight)
		go_until(s, NULL, world.now_ns + 1);
	assert_false(sched->passes.in_flight);
	world.now_ns += 10 * LAG_NS;
	go_until(s, &layers, world.now_ns + 1);
	assert_true(sched->passes.in_flight);
	other_end(&layers);
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_wait_no_longer_than_for_whom_they_wait),
		cmocka_unit_test(layers_and_passes_go_in_turns_behind_a_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
