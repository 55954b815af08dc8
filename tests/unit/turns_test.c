/*
 * turns_test.c - who has how much of the backend's time, where not all that wait fit one batch; and
 * that all who fit go together. Time is modelled (modelled.h): nothing here depends on the machine.
 */
#include "modelled.h"

#include "daemon/sched/round.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1e6
#define RUN_NS UINT64_C(10000000000)
#define FIRST_NS UINT64_C(500000000)
#define CROWD_NS UINT64_C(1000000000)
#define LONG_TOKENS 131072u /* a row takes 10 ms, and reading them 22 */
#define SHORT_TOKENS 13107u /* 1 ms, and 2.2 */
#define MANY 64u
#define FAIR 0.45

static int setup(void **state)
{
	*state = modelled_new();
	modelled_start(*state);
	return 0;
}

static int teardown(void **state)
{
	modelled_free(*state);
	return 0;
}

/* User 1 asks for so many rows again and again, others for so many. */
static void run(struct modelled *m, uint32_t n_new_of_first, uint32_t n_new_of_others)
{
	uint64_t end_ns = modelled_now_ns() + RUN_NS;

	m->first_again = n_new_of_first;
	m->others_again = n_new_of_others;
	while (modelled_now_ns() < end_ns)
		modelled_round(m);
}

static double had_by(const struct modelled *m, uint32_t first, uint32_t n)
{
	double ns = 0;

	for (uint32_t i = first; i < first + n; i++)
		ns += m->clients[i].had_ns;
	return ns;
}

static double share_of(const struct modelled *m, uint32_t first, uint32_t n)
{
	return had_by(m, first, n) / had_by(m, 0, m->n_clients);
}

static void join_many(struct modelled *m, uint32_t user, uint32_t n, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < n; i++)
		modelled_join(m, user, n_tokens);
	modelled_forget(m);
}

/* Some session of the user is at work all the time, though none of them alone. */
static void a_user_of_one_session_has_as_much_as_one_of_many(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, LONG_TOKENS);
	join_many(m, 2, MANY, LONG_TOKENS);
	run(m, 1, 1);
	assert_true(share_of(m, 0, 1) >= FAIR);
}

static void a_user_of_short_steps_has_as_much_as_one_of_long_steps(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, SHORT_TOKENS);
	join_many(m, 2, MANY, LONG_TOKENS);
	run(m, 1, 1);
	assert_true(share_of(m, 0, 1) >= FAIR);
}

/* The backend has nothing to do while it waits for him: that is his part. */
static void who_is_waited_for_pays_for_it(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, SHORT_TOKENS / 100);
	join_many(m, 2, 4, LONG_TOKENS);
	m->moment_ns = 500000;
	run(m, 1, 1);
	assert_true(had_by(m, 1, 4) >= FAIR * RUN_NS);
}

static void decode_has_as_much_as_another_users_prefill(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, SHORT_TOKENS);
	join_many(m, 2, 4, LONG_TOKENS);
	run(m, 1, 512);
	assert_true(share_of(m, 0, 1) >= FAIR);
}

static void prefill_has_as_much_as_another_users_decode(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, LONG_TOKENS);
	join_many(m, 2, MANY, LONG_TOKENS);
	run(m, 512, 1);
	assert_true(share_of(m, 0, 1) >= FAIR);
}

/* They cannot go together, and what one takes is twice what another does. */
static void sessions_of_a_user_have_as_much_as_each_other(void **state)
{
	struct modelled *m = *state;
	double all_ns = 0;

	modelled_join(m, 1, LONG_TOKENS);
	modelled_join(m, 1, LONG_TOKENS / 2);
	modelled_join(m, 1, LONG_TOKENS / 4 * 3);
	modelled_forget(m);
	m->h.config.batch_budget_ms = 33;
	m->instantly = true;
	run(m, 1, 1);
	for (uint32_t i = 0; i < 3; i++)
		all_ns += m->clients[i].rows_ns;
	for (uint32_t i = 0; i < 3; i++)
		assert_true(m->clients[i].rows_ns >= FAIR * 2 / 3 * all_ns);
}

static void who_was_away_has_saved_nothing_up(void **state)
{
	struct modelled *m = *state;
	struct modelled_client *first = modelled_join(m, 1, LONG_TOKENS);

	join_many(m, 2, 8, LONG_TOKENS);
	m->n_clients--; /* the last one comes later */
	run(m, 1, 1);
	m->n_clients++;
	modelled_forget(m);
	run(m, 1, 1);
	assert_true(share_of(m, 0, 1) >= FAIR);
	assert_true(share_of(m, 0, 1) <= 1 - FAIR);
	assert_true(first->n_steps == 0);
}

/* Of three users, each many times what it reads alone. */
static void all_who_fit_go_together(void **state)
{
	struct modelled *m = *state;

	for (uint32_t user = 1; user <= 3; user++)
		join_many(m, user, 4, SHORT_TOKENS / 4);
	struct sched_status before = harness_status(&m->h);

	run(m, 1, 1);
	struct sched_status after = harness_status(&m->h);

	assert_true(after.decode_jobs - before.decode_jobs > 100);
	assert_int_equal(after.decode_sessions - before.decode_sessions,
			 (after.decode_jobs - before.decode_jobs) * m->n_clients);
	assert_int_equal(after.steps_cut, 0);
}

/* By what each reads alone they seem not to fit; they share nearly all of it. */
static void sessions_that_share_go_together(void **state)
{
	struct modelled *m = *state;

	join_many(m, 1, MANY, SHORT_TOKENS / 8);
	struct sched_status before = harness_status(&m->h);

	run(m, 1, 1);
	struct sched_status after = harness_status(&m->h);

	assert_true(MANY * SHORT_TOKENS / 8 * (MODELLED_PAIR_NS + MODELLED_TOKEN_NS) >
		    m->h.config.batch_budget_ms * MS * 0.8);
	assert_int_equal(after.decode_sessions - before.decode_sessions,
			 (after.decode_jobs - before.decode_jobs) * MANY);
}

/* ---- near the budget ---- */

static const uint64_t gaps_ns[] = {0, 200000, 1000000, 5000000};

/* One session of user 1 and many of user 2, whose steps together take so many budgets, each of his
 * after a pause at random; user 1 asks at once. */
static struct modelled *crowd_new(double n_budgets, uint64_t gap_ns)
{
	struct modelled *m = modelled_new();
	double budget_ns = m->h.config.batch_budget_ms * MS;
	double tokens =
		n_budgets * budget_ns / ((MANY + 1) * MODELLED_PAIR_NS + 2 * MODELLED_TOKEN_NS);

	modelled_start(m);
	modelled_join(m, 1, (uint32_t)tokens);
	join_many(m, 2, MANY, (uint32_t)tokens);
	m->gap_ns = gap_ns;
	m->random = gap_ns + (uint64_t)tokens;
	m->first_again = m->others_again = 1;
	return m;
}

static void crowd_run(struct modelled *m, void (*look)(const struct modelled *m))
{
	uint64_t end_ns = modelled_now_ns() + CROWD_NS;

	while (modelled_now_ns() < end_ns) {
		modelled_round(m);
		if (look)
			look(m);
	}
}

/* However few of the others are there at a time. How soon he comes again is learned first. */
static void a_user_of_one_session_has_half_of_what_hardly_does_not_fit(void **state)
{
	static const double loads[] = {1.02, 1.1, 1.2, 1.5, 2, 3, 4};

	(void)state;
	for (unsigned i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		for (unsigned j = 0; j < sizeof(gaps_ns) / sizeof(*gaps_ns); j++) {
			struct modelled *m = crowd_new(loads[i], gaps_ns[j]);

			crowd_run(m, NULL);
			modelled_forget(m);
			crowd_run(m, NULL);
			if (share_of(m, 0, 1) < FAIR)
				fail_msg("%.3f at %.2f budgets, with gaps of %llu us",
					 share_of(m, 0, 1), loads[i],
					 (unsigned long long)gaps_ns[j] / 1000);
			modelled_free(m);
		}
	}
}

/* Rounds for so long. */
static void go_on(struct modelled *m, uint64_t for_ns)
{
	uint64_t end_ns = modelled_now_ns() + for_ns;

	while (modelled_now_ns() < end_ns)
		modelled_round(m);
}

/* His share of his first half second, where he comes to the others, has a step, and is away for so
 * long: nobody knows yet how soon he comes again. */
static double share_of_a_newcomer(double n_budgets, uint64_t gap_ns, uint64_t pause_ns)
{
	struct modelled *m = crowd_new(n_budgets, gap_ns);
	double share;

	m->first_again = 0;
	go_on(m, CROWD_NS);
	modelled_ask(m, &m->clients[0], 1);
	modelled_await(m, &m->clients[0]);
	go_on(m, pause_ns);
	modelled_forget(m);
	m->first_again = 1;
	go_on(m, FIRST_NS);
	share = share_of(m, 0, 1);
	modelled_free(m);
	return share;
}

static void a_newcomer_has_his_part_from_the_start(void **state)
{
	static const double loads[] = {1.02, 1.5, 4};
	static const uint64_t pauses_ns[] = {0, 20000000, 60000000, 1000000000};

	(void)state;
	for (unsigned i = 0; i < 3 * 4 * 4; i++) {
		uint64_t gap_ns = gaps_ns[i % 4], pause_ns = pauses_ns[i / 4 % 4];
		double share = share_of_a_newcomer(loads[i / 16], gap_ns, pause_ns);

		if (share < FAIR)
			fail_msg("%.3f at %.2f budgets, with gaps of %llu us, after %llu us", share,
				 loads[i / 16], (unsigned long long)gap_ns / 1000,
				 (unsigned long long)pause_ns / 1000);
	}
}

/* Whoever is there goes with the next batch. */
static void look_for_those_left(const struct modelled *m)
{
	assert_false(m->h.sched->fit.left_some);
}

static void what_fits_goes_together_with_gaps_too(void **state)
{
	static const double loads[] = {0.5, 0.7, 0.9};

	(void)state;
	for (unsigned i = 0; i < sizeof(loads) / sizeof(*loads); i++) {
		for (unsigned j = 0; j < sizeof(gaps_ns) / sizeof(*gaps_ns); j++) {
			struct modelled *m = crowd_new(loads[i], gaps_ns[j]);

			crowd_run(m, look_for_those_left);
			modelled_free(m);
		}
	}
}

/* Each reads the same path, which is a good part of what a step takes: none adds it twice. */
static void who_is_away_shares_too(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, 64);
	join_many(m, 2, 8, SHORT_TOKENS * 3);
	m->gap_ns = 5000000;
	m->first_again = m->others_again = 1;
	m->h.config.batch_budget_ms = 40;
	crowd_run(m, look_for_those_left);
}

/* ---- at the most that the key batch_window_max_us takes ------------------------------------- */

#define MOST_WINDOW_US 1000000u
#define ROWS 512u
#define SOON_NS UINT64_C(90000000) /* else it is no pace, but a pause */

/* The client asks for a row so many times, each time so long after it had the last one. */
static void decode(struct modelled *m, struct modelled_client *client, uint32_t n, uint64_t lag_ns)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t end_ns = modelled_now_ns() + lag_ns;

		while (modelled_now_ns() < end_ns)
			modelled_round(m);
		modelled_ask(m, client, 1);
		modelled_await(m, client);
	}
}

/* Goes on until the client has what it asked for: from one of its batches to the next, at most. */
static double longest_apart_ns(struct modelled *m, const struct modelled_client *client)
{
	uint64_t n = m->n_batches, since_ns = modelled_now_ns(), longest_ns = 0;

	while (!modelled_has(client)) {
		modelled_round(m);
		if (m->n_batches == n)
			continue;
		n = m->n_batches;
		longest_ns = max_u64(longest_ns, modelled_now_ns() - since_ns);
		since_ns = modelled_now_ns();
	}
	return (double)longest_ns;
}

/* User 1 wants many batches, while another one does not come again who has had less: how long user
 * 1 waits for him, of whom the daemon has seen so much. */
static double waited_ns(uint32_t n_steps, uint64_t lag_ns)
{
	struct modelled *m = modelled_new();
	double ns;

	m->moment_ns = 1000000;
	m->h.config.batch_budget_ms = 1;
	m->h.config.batch_window_max_us = MOST_WINDOW_US;
	modelled_start(m);
	modelled_join(m, 1, SHORT_TOKENS);
	modelled_join(m, 2, SHORT_TOKENS);
	decode(m, &m->clients[1], 1, SOON_NS);
	decode(m, &m->clients[1], n_steps, lag_ns);
	modelled_forget(m);
	modelled_ask(m, &m->clients[0], ROWS);
	ns = longest_apart_ns(m, &m->clients[0]) - m->longest_ns;
	modelled_free(m);
	return ns;
}

/* Twice what is usual for him, or a quarter of that where nobody can tell; or not at all. */
static void nobody_waits_longer_for_another_user_than_the_key_says(void **state)
{
	const double most_ns = MOST_WINDOW_US * 1e3;
	double usual_ns = waited_ns(40, MOST_WINDOW_US * UINT64_C(490));
	double newcomer_ns = waited_ns(10, MOST_WINDOW_US * UINT64_C(2000));

	(void)state;
	assert_true(usual_ns > 0.95 * most_ns);
	assert_true(usual_ns <= most_ns);
	assert_true(waited_ns(40, MOST_WINDOW_US * UINT64_C(600)) < 0.01 * most_ns);
	assert_true(newcomer_ns > 0.2 * most_ns);
	assert_true(newcomer_ns <= 0.25 * most_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_user_of_one_session_has_as_much_as_one_of_many,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_user_of_short_steps_has_as_much_as_one_of_long_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(who_is_waited_for_pays_for_it, setup, teardown),
		cmocka_unit_test_setup_teardown(decode_has_as_much_as_another_users_prefill, setup,
						teardown),
		cmocka_unit_test_setup_teardown(prefill_has_as_much_as_another_users_decode, setup,
						teardown),
		cmocka_unit_test_setup_teardown(sessions_of_a_user_have_as_much_as_each_other,
						setup, teardown),
		cmocka_unit_test_setup_teardown(who_was_away_has_saved_nothing_up, setup, teardown),
		cmocka_unit_test_setup_teardown(all_who_fit_go_together, setup, teardown),
		cmocka_unit_test_setup_teardown(sessions_that_share_go_together, setup, teardown),
		cmocka_unit_test(a_user_of_one_session_has_half_of_what_hardly_does_not_fit),
		cmocka_unit_test(a_newcomer_has_his_part_from_the_start),
		cmocka_unit_test(what_fits_goes_together_with_gaps_too),
		cmocka_unit_test_setup_teardown(who_is_away_shares_too, setup, teardown),
		cmocka_unit_test(nobody_waits_longer_for_another_user_than_the_key_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
