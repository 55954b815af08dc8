/*
 * window_test.c - who waits for whom: a scheduler whose rounds the test goes itself, by a clock of
 * the test's own, and agents that decode over one prompt.
 */
#include "sched_harness.h"

#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_PROMPT 200
#define N_AGENTS 4
#define N_LAYERS 3
#define WAIT_MAX_US 10000
#define MOST_WINDOW_US 1000000 /* that the key takes */

static const struct work_shape SHAPE = {.n_layers = N_LAYERS,
					.n_q_heads = 2,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 16,
					.dtype = WORK_FP32};

static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
	return fake_ns;
}

struct agent {
	struct client c;
	uint64_t seq;
	uint32_t layer; /* of the next step */
};

struct fixture {
	struct harness h;
	struct agent agents[N_AGENTS];
};

static void go(struct fixture *f)
{
	while (sched_round(f->h.sched))
		continue;
}

static void pass_us(struct fixture *f, uint64_t us)
{
	fake_ns += us * 1000;
	go(f);
}

/* The next step of the agent's token, behind an extension where a token begins. */
static void step(struct fixture *f, int i)
{
	struct agent *a = &f->agents[i];
	struct abi_step_seq rec = client_step_seq(&a->c, a->seq, 1);
	uint32_t id = 1000 * (uint32_t)i + (uint32_t)a->c.ticket;

	if (a->layer == 0)
		client_submit(&a->c,
			      (struct abi_entry){.kind = ABI_EXTEND, .seq = a->seq, .count = 1},
			      &id, 4);
	client_submit(&a->c, (struct abi_entry){.kind = ABI_STEP, .count = 1, .layer = a->layer},
		      &rec, sizeof(rec));
	a->layer = (a->layer + 1) % N_LAYERS;
	go(f);
}

static bool is_done(const struct fixture *f, int i)
{
	return ring_done(f->agents[i].c.lane) == f->agents[i].c.ticket;
}

static struct sched_status *status(const struct fixture *f)
{
	return &f->h.sched->core.stats;
}

static void start(struct fixture *f, enum config_window hold, uint64_t last_domain)
{
	uint32_t prompt[N_PROMPT];

	for (uint32_t i = 0; i < N_PROMPT; i++)
		prompt[i] = i + 100;
	harness_init(&f->h);
	f->h.config.batch_window = hold;
	f->h.config.batch_window_max_us = WAIT_MAX_US;
	f->h.stepped = true;
	harness_start(&f->h);
	fake_ns = 1000000000;
	f->h.sched->core.clock = fake_clock;
	for (int i = 0; i < N_AGENTS; i++) {
		struct agent *a = &f->agents[i];
		struct store_match match;

		a->layer = 0;
		client_start(&a->c, &f->h, i == N_AGENTS - 1 ? last_domain : 1000, &SHAPE, 1 << 20);
		assert_int_equal(client_open(&a->c, prompt, N_PROMPT, &a->seq, &match), 0);
		if (N_PROMPT - match.cached > 16)
			client_compute(&a->c, a->seq, prompt + match.cached,
				       N_PROMPT - match.cached);
	}
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	start(f, CONFIG_WINDOW_ALWAYS, 1001);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < N_AGENTS; i++)
		client_end(&f->agents[i].c);
	harness_stop(&f->h);
	free(f);
	return 0;
}

/* Agents 0 and 1 decode a token, and find each other as soon as they are known. Their lag is 100
 * us. */
static void meet(struct fixture *f)
{
	for (int layer = 0; layer < N_LAYERS; layer++) {
		pass_us(f, 100);
		step(f, 0);
		assert_int_equal(is_done(f, 0), layer == 0);
		step(f, 1);
		assert_true(is_done(f, 0) && is_done(f, 1));
	}
}

/* Agents 0 and 1, each as soon as its last step is done. */
static void both_go_on(struct fixture *f, int n_steps)
{
	for (int i = 0; i < n_steps; i++) {
		pass_us(f, 100);
		for (int k = 0; k < 2; k++) {
			if (is_done(f, k))
				step(f, k);
		}
	}
}

static void who_is_ahead_waits_for_the_other_to_come_round(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 0);
	pass_us(f, WAIT_MAX_US); /* 1 stays away for once */
	step(f, 0);
	assert_true(is_done(f, 0));
	step(f, 1);
	assert_false(is_done(f, 1)); /* a layer from here to 0's next token, two from 0 to here */
	pass_us(f, 100);
	step(f, 0);
	assert_true(is_done(f, 0) && !is_done(f, 1));
	pass_us(f, 100);
	step(f, 0);
	assert_true(is_done(f, 0) && is_done(f, 1));
}

static void who_is_a_layer_behind_is_waited_for(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 0);
	pass_us(f, WAIT_MAX_US); /* 1 stays away for once */
	step(f, 1);
	assert_true(is_done(f, 1)); /* a layer from 1 to 0, two from 0 to 1's next token */
	pass_us(f, 50);
	step(f, 0);
	assert_false(is_done(f, 0));
	pass_us(f, 50);
	step(f, 1);
	assert_true(is_done(f, 0) && is_done(f, 1));
}

static void who_has_met_is_waited_for(void **state)
{
	struct fixture *f = *state;
	uint64_t won;

	meet(f);
	won = status(f)->windows_won;
	pass_us(f, 100);
	step(f, 0);
	assert_false(is_done(f, 0));
	pass_us(f, 70);
	assert_false(is_done(f, 0));
	step(f, 1);
	assert_true(is_done(f, 0) && is_done(f, 1));
	assert_int_equal(status(f)->windows_won, won + 1);
	assert_int_equal(status(f)->windows_lost, 0);
	assert_int_equal(status(f)->window_ns % 100000, 70000);
}

static void nobody_is_waited_for_beyond_the_bound(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 0);
	pass_us(f, WAIT_MAX_US - 1);
	assert_false(is_done(f, 0));
	pass_us(f, 1);
	assert_true(is_done(f, 0));
	assert_int_equal(status(f)->windows_lost, 1);
}

/* At the most that the key takes. Who comes to those who wait waits no longer than they do. */
static void nor_beyond_the_longest_bound(void **state)
{
	struct fixture *f = *state;

	f->h.config.batch_window_max_us = MOST_WINDOW_US;
	meet(f);
	step(f, 0);
	pass_us(f, MOST_WINDOW_US / 2);
	step(f, 3); /* of another domain */
	pass_us(f, MOST_WINDOW_US / 2 - 1);
	assert_false(is_done(f, 0));
	pass_us(f, 1);
	assert_true(is_done(f, 0) && is_done(f, 3));
	assert_int_equal(status(f)->windows_lost, 1);
}

static void who_stays_away_is_not_waited_for_again_until_they_meet(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 0);
	pass_us(f, WAIT_MAX_US);
	for (int i = 0; i < 2 * N_LAYERS; i++) {
		pass_us(f, 100);
		step(f, 0);
		assert_true(is_done(f, 0));
	}
	both_go_on(f, 5 * N_LAYERS);
	uint64_t jobs = status(f)->decode_jobs, sessions = status(f)->decode_sessions;

	both_go_on(f, 2 * N_LAYERS);
	assert_int_equal(status(f)->decode_sessions - sessions,
			 2 * (status(f)->decode_jobs - jobs));
	assert_int_equal(status(f)->windows_lost, 1);
}

/* Who boards for somebody who does not come waits once. */
static void who_boards_in_vain_does_so_once(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 2);
	assert_false(is_done(f, 2));
	pass_us(f, WAIT_MAX_US);
	assert_true(is_done(f, 2));
	for (int i = 0; i < 3 * N_LAYERS; i++) {
		pass_us(f, 100);
		step(f, 2);
		assert_true(is_done(f, 2));
	}
}

/* Two agents that need lag_ns from a completion to the next step, for so many milliseconds. */
static void decode(struct fixture *f, uint64_t (*due_ns)[2], uint64_t lag_ns, int n_ms)
{
	for (int ms = 0; ms < n_ms; ms++) {
		for (int k = 0; k < 2; k++) {
			if (is_done(f, k) && (*due_ns)[k] == 0)
				(*due_ns)[k] = fake_ns + lag_ns;
			if (is_done(f, k) && fake_ns >= (*due_ns)[k]) {
				(*due_ns)[k] = 0;
				step(f, k);
			}
		}
		pass_us(f, 1000);
	}
}

/* Tokens that take longer than the bound, half of one apart: each token's wait brings the younger
 * closer. */
static void who_cannot_board_in_one_wait_comes_closer(void **state)
{
	struct fixture *f = *state;
	uint64_t lag_ns = WAIT_MAX_US * 1000, due_ns[2] = {fake_ns, fake_ns + lag_ns * 3 / 2};
	int token_ms = N_LAYERS * WAIT_MAX_US / 1000;
	uint64_t jobs, sessions;

	decode(f, &due_ns, lag_ns, 30 * token_ms);
	jobs = status(f)->decode_jobs;
	sessions = status(f)->decode_sessions;
	decode(f, &due_ns, lag_ns, 10 * token_ms);
	assert_true(status(f)->decode_jobs > jobs + 20);
	assert_int_equal(status(f)->decode_sessions - sessions,
			 2 * (status(f)->decode_jobs - jobs));
}

static void the_slow_are_not_waited_for(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 2 * N_LAYERS; i++) {
		pass_us(f, 3000); /* within the bound, but no company for those who need 100 us */
		step(f, 2);
		assert_true(is_done(f, 2));
	}
	meet(f);
	pass_us(f, 2500);
	for (int i = 0; i < N_LAYERS; i++) {
		pass_us(f, 100);
		step(f, 0);
		step(f, 1);
		assert_true(is_done(f, 0) && is_done(f, 1));
	}
	step(f, 2); /* nor does it wait for the others */
	assert_true(is_done(f, 2));
}

static void nobody_waits_for_who_shares_nothing(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 2 * N_LAYERS; i++) {
		pass_us(f, 100);
		step(f, 3); /* of another domain */
		assert_true(is_done(f, 3));
		step(f, 0);
		assert_true(is_done(f, 0));
	}
	assert_int_equal(status(f)->window_ns, 0);
}

static void who_closes_is_not_waited_for(void **state)
{
	struct fixture *f = *state;

	meet(f);
	step(f, 0);
	assert_false(is_done(f, 0));
	assert_int_equal(client_close(&f->agents[1].c, f->agents[1].seq), 0);
	go(f);
	assert_true(is_done(f, 0));
}

static void with_cost_nobody_waits_longer_than_it_saves(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	(void)state;
	start(f, CONFIG_WINDOW_COST, 1000);
	for (int i = 0; i < 2 * N_LAYERS; i++) {
		step(f, 0);
		pass_us(f, 4000); /* a layer's 25 KB are no reason to wait for so long */
		assert_true(is_done(f, 0));
		step(f, 1);
		pass_us(f, 4000);
		assert_true(is_done(f, 1));
	}
	*state = f;
	tear_down(state);
}

static void never_means_never(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	start(f, CONFIG_WINDOW_NEVER, 1000);
	for (int i = 0; i < 2 * N_LAYERS; i++) {
		pass_us(f, 100);
		step(f, 0);
		assert_true(is_done(f, 0));
		step(f, 1);
		assert_true(is_done(f, 1));
	}
	*state = f;
	tear_down(state);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(who_is_ahead_waits_for_the_other_to_come_round),
		TEST(who_is_a_layer_behind_is_waited_for),
		TEST(who_has_met_is_waited_for),
		TEST(nobody_is_waited_for_beyond_the_bound),
		TEST(nor_beyond_the_longest_bound),
		TEST(who_stays_away_is_not_waited_for_again_until_they_meet),
		TEST(who_boards_in_vain_does_so_once),
		TEST(who_cannot_board_in_one_wait_comes_closer),
		TEST(the_slow_are_not_waited_for),
		TEST(nobody_waits_for_who_shares_nothing),
		TEST(who_closes_is_not_waited_for),
		cmocka_unit_test(with_cost_nobody_waits_longer_than_it_saves),
		cmocka_unit_test(never_means_never),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
