/*
 * queues_test.c - entries and requests of one user do not hold up another's: each has so many in a
 * round, or one after the other.
 */
#include "modelled.h"

#include "daemon/control/seqs.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/round.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LANES 64u
#define ENTRIES_AT_ONCE 256u /* of a user in a round, and a lane's turn */
#define ENTRIES_A_TURN 16u
#define REQUESTS 40u

static int setup(void **state)
{
	struct modelled *m = modelled_new();

	modelled_start(m);
	for (uint32_t i = 0; i < LANES; i++)
		modelled_join(m, 2, 16);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	modelled_free(*state);
	return 0;
}

static void flood(struct modelled *m, uint32_t n_clients)
{
	for (uint32_t i = 0; i < n_clients; i++)
		for (uint32_t j = 0; j < ABI_LANE_SLOTS; j++)
			client_submit(&m->clients[i].c, (struct abi_entry){.kind = ABI_NOP}, NULL,
				      0);
}

static uint64_t n_left(const struct modelled *m, uint32_t n_clients)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < n_clients; i++)
		n += m->clients[i].c.ticket - ring_done(m->clients[i].c.lane);
	return n;
}

static void a_users_entry_waits_for_few_of_anothers(void **state)
{
	struct modelled *m = *state;
	struct modelled_client *other = modelled_join(m, 1, 16);
	uint64_t before;

	flood(m, LANES);
	before = n_left(m, LANES);
	client_submit(&other->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	sched_round(m->h.sched);
	assert_true(modelled_has(other));
	assert_true(before - n_left(m, LANES) <= ENTRIES_AT_ONCE + 16);
}

static uint64_t slow_ns;

/* Between two looks at it much goes on. */
static uint64_t slow_clock(void)
{
	return slow_ns += 100000;
}

/* How many of a user's entries of this kind are served in a round beside another's. */
static uint64_t n_served_in_a_round(struct modelled *m, struct abi_entry entry, uint32_t body_bytes)
{
	static const uint8_t body[64];
	uint64_t before;

	for (uint32_t i = 0; i < LANES; i++)
		for (uint32_t j = 0; j < ABI_LANE_SLOTS / 4; j++)
			client_submit(&m->clients[i].c, entry, body, body_bytes);
	before = n_left(m, LANES);
	m->h.sched->core.clock = slow_clock;
	slow_ns = m->h.sched->core.now_ns;
	sched_round(m->h.sched);
	return before - n_left(m, LANES);
}

static void entries_that_take_no_time_are_counted_alone(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, 16);
	assert_int_equal(n_served_in_a_round(m, (struct abi_entry){.kind = ABI_NOP}, 0),
			 ENTRIES_AT_ONCE);
}

/* A lane's turn of what has a body, or fails, is half of what a user has by such a clock. */
static void entries_that_may_take_long_are_timed(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, 16);
	assert_in_range(n_served_in_a_round(m, (struct abi_entry){.kind = ABI_NOP}, 64), 16, 48);
}

static void entries_that_fail_are_timed(void **state)
{
	struct modelled *m = *state;

	modelled_join(m, 1, 16);
	assert_in_range(n_served_in_a_round(m, (struct abi_entry){.kind = ABI_STEP}, 0), 16, 48);
}

static struct modelled *timed;
static uint64_t timed_since_ns;

/* Entries of each fifth lane take time, no others. */
static uint64_t clock_of_each_fifth(void)
{
	uint64_t ns = timed_since_ns;

	for (uint32_t i = 4; i < LANES; i += 5)
		ns += ring_done(timed->clients[i].c.lane) * 20000;
	return ns;
}

/* Those of the first lanes do. */
static uint64_t clock_of_lanes(void)
{
	uint64_t ns = timed_since_ns;

	for (uint32_t i = 0; i < LANES; i++)
		ns += ring_done(timed->clients[i].c.lane) * 5000;
	return ns;
}

static void round_by(struct modelled *m, uint64_t (*clock)(void))
{
	uint64_t (*was)(void) = m->h.sched->core.clock;

	timed = m;
	timed_since_ns = m->h.sched->core.now_ns;
	m->h.sched->core.clock = clock;
	sched_round(m->h.sched);
	m->h.sched->core.clock = was;
}

static void submit_a_turn(struct modelled *m, uint32_t lane, uint32_t body_bytes,
			  struct abi_entry last)
{
	static const uint8_t body[64];

	for (uint32_t j = 1; j < ENTRIES_A_TURN; j++)
		client_submit(&m->clients[lane].c, (struct abi_entry){.kind = ABI_NOP}, body,
			      body_bytes);
	client_submit(&m->clients[lane].c, last, NULL, 0);
}

static void a_turns_last_entry_hides_none_before_it(void **state)
{
	const struct abi_entry plain = {.kind = ABI_NOP}, fork = {.kind = ABI_FORK};
	struct modelled *m = *state;
	uint64_t before;

	modelled_join(m, 1, 16);
	for (uint32_t i = 0; i < LANES; i++)
		submit_a_turn(m, i, i % 5 == 4 ? 64 : 0, i % 5 == 4 ? fork : plain);
	before = n_left(m, LANES);
	round_by(m, clock_of_each_fifth);
	assert_int_equal(before - n_left(m, LANES), 5 * ENTRIES_A_TURN);
}

/* What a user is charged for one entry, behind many of another's that take no time of their own. */
static uint64_t charged_behind_quick_ones(struct modelled *m, struct abi_entry entry,
					  uint32_t body_bytes, bool sleeps)
{
	struct modelled_client *other = modelled_join(m, 1, 16);
	static const uint8_t body[64];

	for (uint32_t i = 0; i < LANES; i++)
		submit_a_turn(m, i, 0, (struct abi_entry){.kind = ABI_NOP});
	atomic_store(&other->c.lane->sleepers, sleeps);
	client_submit(&other->c, entry, body, body_bytes);
	round_by(m, clock_of_lanes);
	assert_true(modelled_has(other));
	assert_int_equal(n_left(m, LANES), LANES * ENTRIES_A_TURN - ENTRIES_AT_ONCE);
	return other->c.session->user->lanes_ns;
}

static void a_body_is_charged_alone(void **state)
{
	const struct abi_entry plain = {.kind = ABI_NOP};

	assert_int_equal(charged_behind_quick_ones(*state, plain, 64, false), 0);
}

static void a_refusal_is_charged_alone(void **state)
{
	const struct abi_entry refused = {.kind = ABI_STEP};

	assert_int_equal(charged_behind_quick_ones(*state, refused, 0, false), 0);
}

static void a_wake_up_is_charged_alone(void **state)
{
	const struct abi_entry plain = {.kind = ABI_NOP};

	assert_int_equal(charged_behind_quick_ones(*state, plain, 0, true), 0);
}

static void each_lanes_turn_comes(void **state)
{
	struct modelled *m = *state;
	uint32_t n_rounds = 0;

	modelled_join(m, 1, 16);
	flood(m, LANES);
	for (; n_left(m, LANES) > 0; n_rounds++) {
		sched_round(m->h.sched);
		/* nobody is served twice before all are once */
		for (uint32_t i = 0; n_rounds == 3 && i < LANES; i++)
			assert_int_equal(n_left(m, LANES), LANES * (ABI_LANE_SLOTS - 16));
	}
	assert_int_equal(n_rounds, LANES * ABI_LANE_SLOTS / ENTRIES_AT_ONCE);
}

static void one_user_alone_is_served_at_once(void **state)
{
	struct modelled *m = *state;

	flood(m, LANES);
	sched_round(m->h.sched);
	assert_int_equal(n_left(m, LANES), LANES * (ABI_LANE_SLOTS - 16));
}

static void a_users_request_waits_for_one_of_anothers(void **state)
{
	struct modelled *m = *state;
	struct modelled_client *other = modelled_join(m, 1, 16);
	static struct sched_request flood[REQUESTS], own;
	static struct seq_length_call calls[REQUESTS];
	struct seq_length_call own_call = {.seq = other->seq};

	for (uint32_t i = 0; i < REQUESTS; i++) {
		calls[i] = (struct seq_length_call){.seq = m->clients[0].seq};
		flood[i] = (struct sched_request){.serve = verb_seq_length.serve,
						  .session = m->clients[0].c.session,
						  .room = &calls[i]};
		sched_post(m->h.sched, &flood[i]);
	}
	own = (struct sched_request){.serve = verb_seq_length.serve,
				     .session = other->c.session,
				     .room = &own_call};
	sched_post(m->h.sched, &own);
	assert_ptr_equal(harness_next_reply(&m->h), &flood[0]);
	assert_ptr_equal(harness_next_reply(&m->h), &own);
	for (uint32_t i = 1; i < REQUESTS; i++)
		assert_ptr_equal(harness_next_reply(&m->h), &flood[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_users_entry_waits_for_few_of_anothers, setup,
						teardown),
		cmocka_unit_test_setup_teardown(entries_that_take_no_time_are_counted_alone, setup,
						teardown),
		cmocka_unit_test_setup_teardown(entries_that_may_take_long_are_timed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(entries_that_fail_are_timed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_turns_last_entry_hides_none_before_it, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_body_is_charged_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refusal_is_charged_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(a_wake_up_is_charged_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(each_lanes_turn_comes, setup, teardown),
		cmocka_unit_test_setup_teardown(one_user_alone_is_served_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_users_request_waits_for_one_of_anothers, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
