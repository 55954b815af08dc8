/*
 * extents_ahead_test.c - memory of the pool that is there before anybody asks for it: how much, who
 * waits for it, and when it goes.
 */
#include "daemon/sched/round.h"
#include "sched_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST 4u /* of the harness's pool */
#define EXTENT_TOKENS 32768u
#define MS UINT64_C(1000000)

/* The CPU's backend, by a thread of the daemon's too. */
static struct {
	struct backend_ops ops;
	uint32_t n_committed, n_released, n_forgotten; /* by the scheduler */
	_Atomic uint32_t n_prepared;
	_Atomic uint32_t held_ms; /* whoever prepares takes so long at most */
	int prepare_result;
	uint64_t now_ns;
} world;

static uint64_t world_clock(void)
{
	return world.now_ns;
}

static int commit(struct backend *b, uint32_t extent)
{
	world.n_committed++;
	return backend_cpu.extent_commit(b, extent);
}

static void release(struct backend *b, uint32_t extent)
{
	world.n_released++;
	backend_cpu.extent_release(b, extent);
}

static void forget(struct backend *b, uint32_t extent)
{
	world.n_forgotten++;
	backend_cpu.extent_release(b, extent);
}

static int prepare(struct backend *b, uint32_t extent)
{
	for (uint32_t i = 0; i < atomic_load(&world.held_ms); i++)
		usleep(1000);
	atomic_fetch_add(&world.n_prepared, 1);
	return world.prepare_result ? world.prepare_result : backend_cpu.extent_commit(b, extent);
}

/* ---- a session whose sequences take an extent each ------------------------------------------- */

struct taker {
	struct harness h;
	struct client c;
	struct ledger ledger;
	uint64_t seqs[16];
	uint32_t n_seqs;
	uint32_t ids[EXTENT_TOKENS];
};

static const struct work_shape one_page_a_row = {.n_layers = 1,
						 .n_q_heads = 1,
						 .n_kv_heads = 1,
						 .head_dim = 16,
						 .page_tokens = 64,
						 .dtype = WORK_FP16};

/* stepped: the test goes the rounds, by a clock of its own. */
static struct taker *taker_new(bool able, bool stepped)
{
	struct taker *t = calloc(1, sizeof(*t));

	memset(&world, 0, sizeof(world));
	world.now_ns = 1000 * MS;
	world.ops = backend_cpu;
	world.ops.extent_commit = commit;
	world.ops.extent_release = release;
	world.ops.extent_prepare = able ? prepare : NULL;
	world.ops.extent_forget = forget;
	harness_init(&t->h);
	t->h.config.pool_bytes = 128u << 20;
	t->h.ops = &world.ops;
	t->h.stepped = stepped;
	harness_start(&t->h);
	if (stepped)
		t->h.sched->core.clock = world_clock;
	t->ledger.max_bytes = UINT64_C(1) << 40;
	sched_share_ledger(t->h.sched, &t->ledger);
	client_start(&t->c, &t->h, 1, &one_page_a_row, 1 << 20);
	return t;
}

static int setup(void **state)
{
	*state = taker_new(true, true);
	return 0;
}

static int setup_unable(void **state)
{
	*state = taker_new(false, true);
	return 0;
}

static int setup_thread(void **state)
{
	*state = taker_new(true, false);
	return 0;
}

static int teardown(void **state)
{
	struct taker *t = *state;

	atomic_store(&world.held_ms, 0);
	client_end(&t->c);
	harness_stop(&t->h);
	assert_int_equal(t->ledger.all_bytes, 0);
	free(t);
	return 0;
}

/* n extents, of which a model keeps the first as a spare once it has been given back. */
static void take(struct taker *t, uint32_t n)
{
	struct store_match match;

	for (; n > 0; n--) {
		uint64_t *seq = &t->seqs[t->n_seqs++];

		t->ids[0]++;
		assert_int_equal(client_open(&t->c, t->ids, 1, seq, &match), 0);
		assert_int_equal(client_extend(&t->c, *seq, t->ids, EXTENT_TOKENS).status, 0);
	}
}

static void give_back_all(struct taker *t)
{
	while (t->n_seqs > 0)
		assert_int_equal(client_close(&t->c, t->seqs[--t->n_seqs]), 0);
}

static void go_until_ready(struct taker *t, uint32_t n)
{
	while (t->h.sched->ahead.n_ready != n)
		sched_round(t->h.sched);
}

static uint64_t kv_extents(const struct taker *t)
{
	return t->ledger.of[LEDGER_KV] / t->h.config.extent_bytes;
}

/* ---- how many -------------------------------------------------------------------------------- */

static void as_many_as_were_lent_in_a_row(void **state)
{
	struct taker *t = *state;

	assert_int_equal(t->h.sched->ahead.most, MOST);
	take(t, 2);
	go_until_ready(t, 2);
	assert_int_equal(world.n_committed + world.n_prepared, 4);
	assert_int_equal(kv_extents(t), 4);
	world.n_committed = 0;
	world.now_ns += 10 * MS;
	take(t, 2);
	assert_int_equal(world.n_committed, 0);
	go_until_ready(t, 2);
	assert_int_equal(kv_extents(t), 6);
}

static void those_of_other_moments_are_no_row(void **state)
{
	struct taker *t = *state;

	for (uint32_t i = 0; i < 3; i++) {
		take(t, 1);
		go_until_ready(t, 1);
		world.now_ns += 10 * MS;
	}
	assert_int_equal(world.n_committed, 1);
	assert_int_equal(t->h.sched->ahead.n_wanted, 1);
}

static void no_more_than_a_part_of_the_pool(void **state)
{
	struct taker *t = *state;

	take(t, MOST + 3);
	go_until_ready(t, MOST);
	for (uint32_t i = 0; i < 10; i++)
		sched_round(t->h.sched);
	assert_int_equal(t->h.sched->ahead.n_ready, MOST);
	assert_int_equal(kv_extents(t), MOST + 3 + MOST);
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void one_in_the_making_is_waited_for(void **state)
{
	struct taker *t = *state;

	atomic_store(&world.held_ms, 200);
	take(t, 1);
	sched_round(t->h.sched);
	assert_true(t->h.sched->ahead.making);
	take(t, 1);
	assert_int_equal(world.n_committed, 1);
	assert_true(world.n_prepared > 0);
}

static void what_cannot_be_had_ahead_is_asked_for_as_before(void **state)
{
	struct taker *t = *state;

	world.prepare_result = -ENOMEM;
	take(t, 1);
	while (world.n_prepared < 1 || t->h.sched->ahead.making)
		sched_round(t->h.sched);
	assert_int_equal(kv_extents(t), 1);
	world.now_ns += 10 * MS;
	take(t, 1);
	assert_int_equal(world.n_committed, 2);
}

static void a_backend_that_never_does_is_not_asked(void **state)
{
	struct taker *t = *state;

	take(t, 3);
	for (uint32_t i = 0; i < 10; i++)
		sched_round(t->h.sched);
	assert_int_equal(t->h.sched->ahead.n_ready, 0);
	assert_false(t->h.sched->ahead.aside.there);
}

/* ---- when it goes ---------------------------------------------------------------------------- */

static void they_go_when_none_was_lent_for_a_while(void **state)
{
	struct taker *t = *state;

	take(t, 3);
	go_until_ready(t, 3);
	world.now_ns += EXTENTS_AHEAD_IDLE_NS - 1;
	sched_round(t->h.sched);
	assert_int_equal(t->h.sched->ahead.n_ready, 3);
	world.now_ns += 1;
	for (uint32_t n = 3; n > 0; n--) {
		assert_int_equal(t->h.sched->ahead.n_ready, n);
		sched_round(t->h.sched); /* one a round */
	}
	assert_int_equal(t->h.sched->ahead.n_ready, 0);
	assert_int_equal(world.n_released, 3);
	assert_int_equal(kv_extents(t), 3);
}

/* Nobody rings its doorbell. */
static void a_scheduler_that_sleeps_lets_them_go(void **state)
{
	struct taker *t = *state;

	take(t, 3);
	while (kv_extents(t) == 3)
		usleep(1000);
	for (uint32_t ms = 0; kv_extents(t) > 3; ms++) {
		assert_true(ms < 10000);
		usleep(1000);
	}
}

/* A model keeps one of them, the others are lent behind those that are ready. */
static void what_is_given_back_is_in_nobodys_way(void **state)
{
	struct taker *t = *state;

	take(t, 3);
	go_until_ready(t, 3);
	give_back_all(t);
	assert_int_equal(world.n_released, 2);
	world.n_committed = 0;
	world.now_ns += 10 * MS;
	take(t, 1 + 3);
	assert_int_equal(world.n_committed, 0);
}

static void weights_have_their_room_first(void **state)
{
	struct taker *t = *state;
	uint64_t extent = t->h.config.extent_bytes;

	take(t, 2);
	go_until_ready(t, 2);
	t->ledger.max_bytes = 4 * extent;
	t->ledger.pool_bytes = 4 * extent;
	atomic_store(&t->ledger.wanted_bytes, 2 * extent);
	while (kv_extents(t) > 2)
		sched_round(t->h.sched);
	assert_int_equal(world.n_released, 2);
	for (uint32_t i = 0; i < 10; i++)
		sched_round(t->h.sched);
	assert_int_equal(kv_extents(t), 2);
	atomic_store(&t->ledger.wanted_bytes, 0);
}

/* Memory that is nobody's yet is the first that who needs some gets. */
static void the_last_memory_is_lent_all_the_same(void **state)
{
	struct taker *t = *state;

	take(t, 2);
	go_until_ready(t, 2);
	t->ledger.max_bytes = 4 * t->h.config.extent_bytes;
	world.n_committed = 0;
	world.now_ns += 10 * MS;
	take(t, 2);
	assert_int_equal(world.n_committed, 0);
	assert_int_equal(kv_extents(t), 4);
}

/* One that came back while another is in the making is lent before that: it gets its memory. */
static void the_last_memory_is_lent_to_whoever_is_first(void **state)
{
	struct taker *t = *state;

	take(t, 2);
	go_until_ready(t, 2);
	world.now_ns += 10 * MS;
	atomic_store(&world.held_ms, 500);
	take(t, 1);
	while (!t->h.sched->ahead.making)
		sched_round(t->h.sched);
	assert_int_equal(client_close(&t->c, t->seqs[0]), 0);
	assert_int_equal(client_close(&t->c, t->seqs[1]), 0);
	assert_int_equal(world.n_released, 1);
	t->ledger.max_bytes = 4 * t->h.config.extent_bytes; /* open, the model's, ready, making */
	assert_int_equal(kv_extents(t), 4);
	world.n_committed = 0;
	take(t, 3);
	assert_int_equal(world.n_committed, 1);
	assert_int_equal(world.n_forgotten, 1);
	assert_int_equal(kv_extents(t), 4);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(as_many_as_were_lent_in_a_row),
		TEST(those_of_other_moments_are_no_row),
		TEST(no_more_than_a_part_of_the_pool),
		TEST(one_in_the_making_is_waited_for),
		TEST(what_cannot_be_had_ahead_is_asked_for_as_before),
		cmocka_unit_test_setup_teardown(a_backend_that_never_does_is_not_asked,
						setup_unable, teardown),
		TEST(they_go_when_none_was_lent_for_a_while),
		cmocka_unit_test_setup_teardown(a_scheduler_that_sleeps_lets_them_go, setup_thread,
						teardown),
		TEST(what_is_given_back_is_in_nobodys_way),
		TEST(weights_have_their_room_first),
		TEST(the_last_memory_is_lent_all_the_same),
		TEST(the_last_memory_is_lent_to_whoever_is_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
