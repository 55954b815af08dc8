/*
 * sched_paths_test.c - paths of many nodes: what their walks take is in the budget of a batch, and
 * sequences close in turns. Time is modelled (modelled.h).
 */
#include "modelled.h"

#include "daemon/control/lanes.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/round.h"
#include "daemon/sched/verbs/sessions.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_PATHS 4u
#define N_NODES 500u /* 0.25 ms to plan, and their tokens 0.12 */
#define PATH_TOKENS 13107u /* 2.2 ms to read, and a row 1 ms */
#define N_SEQS 40u

static struct modelled *start(uint32_t max_path_nodes)
{
	struct modelled *m = modelled_new();

	m->h.config.max_path_nodes = max_path_nodes;
	m->h.config.max_seqs = N_PATHS * (N_NODES + 1) + 1;
	modelled_start(m);
	return m;
}

static uint64_t fork_of(struct modelled_client *client, uint64_t seq)
{
	const struct abi_entry fork = {.kind = ABI_FORK, .seq = seq};
	struct abi_completion done = client_do(&client->c, fork, NULL, 0);

	assert_int_equal(done.status, 0);
	return done.value;
}

/* The path is left behind each of its tokens. */
static void add_nodes(struct modelled *m, struct modelled_client *client, uint64_t seq, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		fork_of(client, seq);
		modelled_ask_all(m, client, &seq, 1, 1);
		modelled_await(m, client);
	}
}

static uint64_t n_batches_of(struct modelled *m, struct modelled_client *client,
			     const uint64_t *seqs)
{
	modelled_forget(m);
	modelled_ask_all(m, client, seqs, N_PATHS, 1);
	modelled_await(m, client);
	return m->n_batches;
}

static void paths_of_many_nodes_are_planned_in_several_batches(void **state)
{
	struct modelled *m = start(8192);
	struct modelled_client *client = modelled_join(m, 1, 1);
	uint64_t seqs[N_PATHS];

	(void)state;
	for (uint32_t i = 0; i < N_PATHS; i++)
		seqs[i] = modelled_open(m, client, i + 1);
	m->h.config.batch_budget_ms = 1;
	assert_int_equal(n_batches_of(m, client, seqs), 1);
	for (uint32_t i = 0; i < N_PATHS; i++)
		add_nodes(m, client, seqs[i], N_NODES);
	assert_int_equal(n_batches_of(m, client, seqs), 2);
	modelled_free(m);
}

/* A step of several sequences: reading one of them once is what takes as long as it takes. */
static void a_step_of_many_paths_is_cut_between_them(void **state)
{
	struct modelled *m = start(8192);
	struct modelled_client *client = modelled_join(m, 1, 1);
	uint64_t seqs[N_PATHS];

	(void)state;
	for (uint32_t i = 0; i < N_PATHS; i++) {
		seqs[i] = modelled_open(m, client, i + 1);
		modelled_ask_all(m, client, &seqs[i], 1, PATH_TOKENS);
		modelled_await(m, client);
	}
	m->h.config.batch_budget_ms = 1;
	assert_int_equal(n_batches_of(m, client, seqs), N_PATHS);
	assert_true(m->longest_ns < 1.1 * (MODELLED_TOKEN_NS + MODELLED_PAIR_NS) * PATH_TOKENS);
	modelled_free(m);
}

static void who_would_make_a_path_longer_is_told(void **state)
{
	struct modelled *m = start(64);
	struct modelled_client *client = modelled_join(m, 1, 1);
	struct abi_entry extend = {.kind = ABI_EXTEND, .seq = client->seq, .count = 1};
	const uint32_t id = 0;

	(void)state;
	add_nodes(m, client, client->seq, 63);
	fork_of(client, client->seq);
	struct abi_completion done = client_do(&client->c, extend, &id, sizeof(id));

	assert_int_equal(done.status, -EMLINK);
	assert_int_equal(done.reason, ABI_TOO_MANY_NODES);
	modelled_free(m);
}

static uint64_t clock_ns;

static uint64_t passing_clock(void)
{
	return clock_ns += 2000000;
}

static uint64_t n_seqs(struct modelled *m)
{
	return harness_status(&m->h).store.n_seqs;
}

static void a_session_ends_in_turns(void **state)
{
	struct modelled *m = start(64);
	struct modelled_client *client = modelled_join(m, 1, 64);
	struct session_end_call call = {0};
	struct sched_request end = {.serve = sched_session_end,
				    .session = client->c.session,
				    .room = &call};
	uint64_t n = N_SEQS;

	(void)state;
	for (uint32_t i = 1; i < N_SEQS; i++)
		fork_of(client, client->seq);
	clock_ns = modelled_now_ns();
	m->h.sched->core.clock = passing_clock;
	assert_int_equal(n_seqs(m), n);
	for (; n > 0; n -= 8) {
		assert_int_equal(harness_call(&m->h, &end), 0);
		assert_int_equal(call.more, n > 8);
		assert_int_equal(n_seqs(m), n - 8);
	}
	assert_null(call.session);
	client_unmap(&client->c);
	m->n_clients = 0;
	modelled_free(m);
}

/* Others' requests are served meanwhile. */
static void a_lane_goes_in_turns(void **state)
{
	struct modelled *m = start(64);
	struct modelled_client *client = modelled_join(m, 1, 64);
	struct lane_call call = {.lane = 1};
	struct sched_request remove = {.serve = verb_lane_free.serve,
				       .session = client->c.session,
				       .room = &call};
	struct sched_status status;
	struct sched_request other = {.serve = verb_status.serve,
				      .privileged = true,
				      .room = &status};

	(void)state;
	for (uint32_t i = 1; i < N_SEQS; i++)
		fork_of(client, client->seq);
	clock_ns = modelled_now_ns();
	m->h.sched->core.clock = passing_clock;
	sched_post(m->h.sched, &remove);
	sched_post(m->h.sched, &other);
	assert_ptr_equal(harness_next_reply(&m->h), &other);
	assert_in_range(status.store.n_seqs, 1, N_SEQS - 1);
	assert_ptr_equal(harness_next_reply(&m->h), &remove);
	assert_int_equal(remove.code, 0);
	assert_int_equal(n_seqs(m), 0);
	modelled_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_of_many_nodes_are_planned_in_several_batches),
		cmocka_unit_test(a_step_of_many_paths_is_cut_between_them),
		cmocka_unit_test(who_would_make_a_path_longer_is_told),
		cmocka_unit_test(a_session_ends_in_turns),
		cmocka_unit_test(a_lane_goes_in_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
