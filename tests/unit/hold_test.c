/* hold_test.c - who waits for whom: threads that decode through a real scheduler, each a session of its own. */
#include "sched_harness.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define N_PROMPT 200
#define MAX_AGENTS 5

static const struct work_shape SHAPE = {.n_layers = 3,
					.n_q_heads = 2,
					.n_kv_heads = 1,
					.head_dim = 16,
					.page_tokens = 16,
					.dtype = WORK_FP32};
static uint32_t prompt[N_PROMPT];

struct agent {
	struct client c;
	uint64_t seq;
	uint32_t n_tokens, start_us, layer_us;
	pthread_t thread;
};

struct fixture {
	struct harness h;
	struct agent agents[MAX_AGENTS];
};

static void start(struct fixture *f, enum config_hold hold, uint32_t wait_max_us)
{
	for (uint32_t i = 0; i < N_PROMPT; i++)
		prompt[i] = i + 100;
	harness_init(&f->h);
	f->h.config.batch_hold = hold;
	f->h.config.batch_wait_max_us = wait_max_us;
	f->h.config.spin_us = 0;
	harness_start(&f->h);
}

static void agent_open(struct fixture *f, uint32_t i, uint64_t domain)
{
	struct agent *a = &f->agents[i];
	struct store_match match;

	client_start(&a->c, &f->h, domain, &SHAPE, 1 << 20);
	assert_int_equal(client_open(&a->c, prompt, N_PROMPT, &a->seq, &match), 0);
	client_compute(&a->c, a->seq, prompt + match.cached, N_PROMPT - match.cached);
}

static void decode(struct agent *a, uint32_t n_tokens)
{
	struct abi_step_seq rec = client_step_seq(&a->c, a->seq, 1);

	for (uint32_t t = 0; t < n_tokens; t++) {
		uint32_t id = 1000 * (uint32_t)a->c.bell + t;

		assert_int_equal(client_extend(&a->c, a->seq, &id, 1).status, 0);
		for (uint32_t layer = 0; layer < SHAPE.n_layers; layer++) {
			usleep(a->layer_us);
			assert_int_equal(client_step(&a->c, &rec, layer).status, 0);
		}
	}
}

static void *agent_main(void *arg)
{
	struct agent *a = arg;

	usleep(a->start_us);
	decode(a, a->n_tokens);
	return NULL;
}

static void run(struct fixture *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		pthread_create(&f->agents[i].thread, NULL, agent_main, &f->agents[i]);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(f->agents[i].thread, NULL);
}

static void stop(struct fixture *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		client_end(&f->agents[i].c);
	harness_stop(&f->h);
}

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* Sessions a decode job while all of n agents decode; the prompts' own jobs are left out. */
static double company(struct fixture *f, uint32_t n)
{
	struct sched_status before = harness_status(&f->h), after;

	run(f, n);
	after = harness_status(&f->h);
	return (double)(after.decode_sessions - before.decode_sessions) /
	       (double)(after.decode_jobs - before.decode_jobs);
}

static void who_starts_late_boards(void **state)
{
	struct fixture f = {0};

	(void)state;
	start(&f, CONFIG_HOLD_ALWAYS, 200000);
	for (uint32_t i = 0; i < 4; i++) {
		agent_open(&f, i, 1000);
		f.agents[i].n_tokens = 60 - i; /* ends with the others, though it starts later */
		f.agents[i].start_us = i * 2500;
		f.agents[i].layer_us = 300;
	}
	assert_true(company(&f, 4) > 3.0);
	stop(&f, 4);
}

static void nobody_waits_across_domains(void **state)
{
	struct fixture f = {0};

	(void)state;
	start(&f, CONFIG_HOLD_ALWAYS, 200000);
	for (uint32_t i = 0; i < 2; i++) {
		agent_open(&f, i, 1000 + i);
		f.agents[i].n_tokens = 20;
		f.agents[i].layer_us = 200;
	}
	company(&f, 2);
	assert_int_equal(harness_status(&f.h).holds_won + harness_status(&f.h).holds_lost, 0);
	stop(&f, 2);
}

static void never_means_never(void **state)
{
	struct fixture f = {0};

	(void)state;
	start(&f, CONFIG_HOLD_NEVER, 200000);
	for (uint32_t i = 0; i < 2; i++) {
		agent_open(&f, i, 1000);
		f.agents[i].n_tokens = 20;
		f.agents[i].layer_us = 200;
	}
	company(&f, 2);
	assert_int_equal(harness_status(&f.h).hold_ns, 0);
	stop(&f, 2);
}

/* The one that stops is waited for once, to the bound, and not again. */
static void who_stays_away_is_waited_for_once(void **state)
{
	struct fixture f = {0};

	(void)state;
	start(&f, CONFIG_HOLD_ALWAYS, 100000);
	for (uint32_t i = 0; i < 2; i++) {
		agent_open(&f, i, 1000);
		f.agents[i].n_tokens = 30;
		f.agents[i].layer_us = 200;
	}
	assert_true(company(&f, 2) > 1.5);
	uint64_t lost = harness_status(&f.h).holds_lost, begin = now_us();

	f.agents[0].layer_us = 0;
	decode(&f.agents[0], 40);
	assert_true(harness_status(&f.h).holds_lost - lost <= 1);
	assert_true(now_us() - begin < 40 * SHAPE.n_layers * 100000 / 4);
	stop(&f, 2);
}

/* A slow one is in nobody's way: with it the fast ones need no longer than a part of what waiting for it would take. */
static void the_slow_are_not_waited_for(void **state)
{
	struct fixture f = {0};
	uint32_t n_tokens = 60, slow_us = 8000;

	(void)state;
	start(&f, CONFIG_HOLD_ALWAYS, 50000);
	for (uint32_t i = 0; i < 4; i++) {
		agent_open(&f, i, 1000);
		f.agents[i].n_tokens = i == 3 ? 5 : n_tokens;
		f.agents[i].layer_us = i == 3 ? slow_us : 100;
	}
	uint64_t begin = now_us();

	run(&f, 4);
	assert_true(now_us() - begin < (uint64_t)n_tokens * SHAPE.n_layers * slow_us / 2);
	stop(&f, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_starts_late_boards),
		cmocka_unit_test(nobody_waits_across_domains),
		cmocka_unit_test(never_means_never),
		cmocka_unit_test(who_stays_away_is_waited_for_once),
		cmocka_unit_test(the_slow_are_not_waited_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
