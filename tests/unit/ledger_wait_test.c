/*
 * ledger_wait_test.c - who needs room that is not there: what KV nobody uses and what is on its way
 * back are waited for, by nobody who has gone, and missed by nobody.
 */
#include "weights_fixture.h"

#include "proto/clock.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define TURNS 10000u
#define SOON_NS UINT64_C(10000000000) /* half of what is waited for room */

/* ---- who asks for room ----------------------------------------------------------------------- */

struct asker {
	pthread_t thread;
	struct ledger *ledger;
	uint64_t bytes;
	int r;
	atomic_bool gone; /* nobody wants it any more */
	atomic_bool done;
};

static bool is_gone(const void *ctx)
{
	const struct asker *asker = ctx;

	return atomic_load(&asker->gone);
}

static void *ask(void *arg)
{
	struct asker *asker = arg;
	struct ledger_wait wait = ledger_wait_for(is_gone, asker);

	asker->r = ledger_ask_kv(asker->ledger, asker->bytes, &wait);
	atomic_store(&asker->done, true);
	return NULL;
}

static void nobody_needs_to_be_woken(void *ctx)
{
	(void)ctx;
}

/* KV that nobody uses goes in pieces, and somebody who wants little asks meanwhile. */
static void one_who_asks_for_less_takes_nothing_from_who_asks_for_more(void **state)
{
	struct ledger ledger = {.max_bytes = 1000, .wake = nobody_needs_to_be_woken};
	struct asker much = {.ledger = &ledger, .bytes = 800}, little = much;

	(void)state;
	little.bytes = 100;
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 1000), 0);
	assert_int_equal(pthread_create(&much.thread, NULL, ask, &much), 0);
	while (!ledger_wants_kv(&ledger))
		sched_yield();
	assert_int_equal(pthread_create(&little.thread, NULL, ask, &little), 0);
	while (!atomic_load(&much.done)) {
		if (ledger_wants_kv(&ledger))
			ledger_give(&ledger, LEDGER_KV, 100);
		usleep(5000);
	}
	pthread_join(much.thread, NULL);
	pthread_join(little.thread, NULL);
	assert_int_equal(much.r, 0);
	assert_int_equal(little.r, 0);
	assert_in_range(ledger.all_bytes, 100, 200);
}

static void count_rings(void *ctx)
{
	atomic_fetch_add((_Atomic uint32_t *)ctx, 1);
}

/* When it is looked at, what weights are about to give is enough; others take that. */
static void who_has_kv_is_woken_again_once_others_took_what_came_back(void **state)
{
	_Atomic uint32_t n_rings = 0;
	struct ledger ledger = {.max_bytes = 1000, .wake = count_rings, .wake_ctx = &n_rings};
	struct asker asker = {.ledger = &ledger, .bytes = 300};
	uint32_t before;

	(void)state;
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 700), 0);
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 300), 0);
	ledger_announce(&ledger, LEDGER_WEIGHTS, 300);
	assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
	while (!ledger_is_asked(&ledger))
		sched_yield();
	usleep(5000);
	assert_int_equal(ledger_wants_kv(&ledger), 0);
	before = atomic_load(&n_rings);
	ledger_announce_no_more(&ledger, LEDGER_WEIGHTS, 300);
	while (atomic_load(&n_rings) == before && !atomic_load(&asker.done))
		sched_yield();
	assert_int_equal(ledger_wants_kv(&ledger), 300);
	ledger_give(&ledger, LEDGER_KV, 300);
	assert_int_equal(pthread_join(asker.thread, NULL), 0);
	assert_int_equal(asker.r, 0);
}

/* Who has asked before keeps nobody beyond his own time, nor who has gone. */
static void who_waits_for_others_to_ask_waits_no_longer_than_his_time(void **state)
{
	struct ledger ledger = {.max_bytes = 1000, .wake = nobody_needs_to_be_woken};
	struct asker first = {.ledger = &ledger, .bytes = 300}, gone = first;
	const struct ledger_wait over = {.until_ns = 0};

	(void)state;
	atomic_store(&gone.gone, true);
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 1000), 0);
	assert_int_equal(pthread_create(&first.thread, NULL, ask, &first), 0);
	while (!ledger_is_asked(&ledger))
		sched_yield();
	assert_int_equal(ledger_ask_kv(&ledger, 100, &over), -ENOSPC);
	(void)ask(&gone);
	assert_int_equal(gone.r, -ENOSPC);
	assert_false(atomic_load(&first.done));
	assert_int_equal(ledger_wants_kv(&ledger), 300);
	atomic_store(&first.gone, true);
	assert_int_equal(pthread_join(first.thread, NULL), 0);
	assert_int_equal(first.r, -ENOSPC);
	assert_false(ledger_is_asked(&ledger));
	assert_int_equal(ledger_wants_kv(&ledger), 0);
}

/* KV was looked at for the first, who has gone meanwhile. */
static void what_is_said_to_one_is_no_answer_to_the_next(void **state)
{
	struct ledger ledger = {.max_bytes = 1000, .wake = nobody_needs_to_be_woken};
	struct asker first = {.ledger = &ledger, .bytes = 300}, second = first;
	uint64_t asked;

	(void)state;
	second.bytes = 100;
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 1000), 0);
	assert_int_equal(pthread_create(&first.thread, NULL, ask, &first), 0);
	while (!ledger_is_asked(&ledger))
		sched_yield();
	asked = ledger_is_asked(&ledger);
	atomic_store(&first.gone, true);
	pthread_join(first.thread, NULL);
	assert_int_equal(pthread_create(&second.thread, NULL, ask, &second), 0);
	while (!ledger_is_asked(&ledger))
		sched_yield();
	ledger_has_no_kv(&ledger, asked);
	assert_int_equal(ledger_wants_kv(&ledger), 100);
	ledger_has_no_kv(&ledger, 100);
	pthread_join(second.thread, NULL);
	assert_int_equal(first.r, -ENOSPC);
	assert_int_equal(second.r, -ENOSPC);
	assert_int_equal(ledger_is_asked(&ledger), 0);
}

/* ---- what is on its way back ----------------------------------------------------------------- */

/* KV has 128 KiB of 256, of which 64 are about to come back, and idle weights 100. */
static struct weights_table *table_with_idle(struct ledger *ledger)
{
	struct weights_table *table;

	*ledger = (struct ledger){.max_bytes = 256 * KIB};
	fixture_ledger = ledger;
	table = fixture_table_of(fixture_coppiced, 256 * KIB, 30000);
	assert_int_equal(ledger_take(ledger, LEDGER_KV, 128 * KIB), 0);
	fixture_leave(fixture_load(table, ALICE, fixture_file_of("idle", 100)));
	ledger_announce(ledger, LEDGER_KV, 64 * KIB);
	return table;
}

static void table_with_idle_end(struct weights_table *table, struct ledger *ledger)
{
	weights_table_free(table);
	assert_int_equal(ledger->of[LEDGER_WEIGHTS] + ledger->announced[LEDGER_WEIGHTS], 0);
	fixture_ledger = NULL;
}

/* 28 KiB are free, and 92 with what comes back. */
static void weights_stay_where_what_comes_back_is_enough(void **state)
{
	struct ledger ledger;
	struct weights_table *table = table_with_idle(&ledger);
	int fd = fixture_open(fixture_file_of("more", 92));
	struct weights *more = fixture_begin(table, BOB, &fd, 1);

	(void)state;
	for (int i = 0; i < 200; i++)
		fixture_moment();
	assert_int_equal(fixture_n_memories, 1);
	ledger_give(&ledger, LEDGER_KV, 64 * KIB);
	ledger_announce_no_more(&ledger, LEDGER_KV, 64 * KIB);
	fixture_end(more);
	fixture_expect_ready(more);
	assert_int_equal(fixture_n_memories, 2);
	weights_unref(more);
	close(fd);
	table_with_idle_end(table, &ledger);
}

static void weights_go_where_what_comes_back_is_not_enough(void **state)
{
	struct ledger ledger;
	struct weights_table *table = table_with_idle(&ledger);
	struct weights *more = fixture_load(table, BOB, fixture_file_of("more", 93));

	(void)state;
	fixture_expect_ready(more);
	assert_int_equal(fixture_n_memories, 1);
	assert_int_equal(ledger.announced[LEDGER_KV], 64 * KIB);
	weights_unref(more);
	table_with_idle_end(table, &ledger);
}

/* No more is evicted than what is lacking beside it. */
static void kv_that_is_to_go_is_what_does_not_come_back_anyway(void **state)
{
	struct ledger ledger = {.max_bytes = 1000, .wake = nobody_needs_to_be_woken};
	struct asker asker = {.ledger = &ledger, .bytes = 300};

	(void)state;
	assert_int_equal(ledger_take(&ledger, LEDGER_KV, 1000), 0);
	ledger_announce(&ledger, LEDGER_KV, 200);
	assert_int_equal(pthread_create(&asker.thread, NULL, ask, &asker), 0);
	while (!ledger_is_asked(&ledger))
		sched_yield();
	assert_int_equal(ledger_wants_kv(&ledger), 100);
	ledger_give(&ledger, LEDGER_KV, 100);
	assert_int_equal(ledger_wants_kv(&ledger), 0);
	assert_true(ledger_is_asked(&ledger));
	ledger_give(&ledger, LEDGER_KV, 200);
	ledger_announce_no_more(&ledger, LEDGER_KV, 200);
	assert_int_equal(ledger_wants_kv(&ledger), 0);
	assert_int_equal(pthread_join(asker.thread, NULL), 0);
	assert_int_equal(asker.r, 0);
}

struct giver {
	struct ledger *ledger;
	_Atomic uint32_t turn, n_given;
};

static void *give_in_turns(void *arg)
{
	struct giver *giver = arg;

	for (uint32_t i = 1; i <= TURNS; i++) {
		while (atomic_load(&giver->turn) != i)
			sched_yield();
		for (volatile uint32_t k = 0; k < i * 7 % 400; k++)
			continue;
		ledger_give(giver->ledger, LEDGER_WEIGHTS, 300);
		ledger_announce_no_more(giver->ledger, LEDGER_WEIGHTS, 300);
		atomic_store(&giver->n_given, i);
	}
	return NULL;
}

static bool note_that_it_waits(const void *ctx)
{
	*(bool *)ctx = true;
	return true;
}

/* It is announced, or there, at each moment. */
static void what_comes_back_while_it_is_looked_at_is_not_missed(void **state)
{
	struct ledger ledger = {.max_bytes = 1000};
	struct giver giver = {.ledger = &ledger};
	pthread_t thread;

	(void)state;
	assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 1000), 0);
	assert_int_equal(pthread_create(&thread, NULL, give_in_turns, &giver), 0);
	for (uint32_t i = 1; i <= TURNS; i++) {
		bool waits;
		struct ledger_wait wait = ledger_wait_for(note_that_it_waits, &waits);

		ledger_announce(&ledger, LEDGER_WEIGHTS, 300);
		atomic_store(&giver.turn, i);
		do {
			waits = false;
			assert_true(ledger_await(&ledger, 300, &wait) || waits);
		} while (atomic_load(&giver.n_given) != i);
		assert_int_equal(ledger_take(&ledger, LEDGER_WEIGHTS, 300), 0);
	}
	pthread_join(thread, NULL);
}

/* ---- who is gone ----------------------------------------------------------------------------- */

/* KV has 200 KiB of 256, and nobody says whether it gives any. */
static struct weights *load_that_waits(struct ledger *ledger, struct weights_table **ret_table)
{
	int fd = fixture_open(fixture_file_of("waits", 100));
	struct weights *weights;

	*ledger = (struct ledger){.max_bytes = 256 * KIB, .wake = nobody_needs_to_be_woken};
	fixture_ledger = ledger;
	*ret_table = fixture_table_of(fixture_coppiced, 256 * KIB, 30000);
	fixture_ledger = NULL;
	assert_int_equal(ledger_take(ledger, LEDGER_KV, 200 * KIB), 0);
	weights = fixture_begin(*ret_table, ALICE, &fd, 1);
	close(fd);
	while (!ledger_is_asked(ledger))
		fixture_moment();
	return weights;
}

static void who_closes_what_waits_for_room_waits_no_more(void **state)
{
	struct weights_table *table;
	struct ledger ledger;
	struct weights_row row;
	struct weights *weights = load_that_waits(&ledger, &table);
	uint64_t soon_ns = clock_now_ns() + SOON_NS;

	(void)state;
	weights_unref(weights);
	while (weights_rows(table, 0, &row, 1) > 0)
		fixture_moment();
	assert_true(clock_now_ns() < soon_ns);
	assert_false(ledger_is_asked(&ledger));
	weights_table_free(table);
	assert_int_equal(ledger.all_bytes, 200 * KIB);
}

static void loads_that_wait_for_room_end_with_the_table(void **state)
{
	struct weights_table *table;
	struct ledger ledger;
	struct weights *weights = load_that_waits(&ledger, &table);
	uint64_t soon_ns = clock_now_ns() + SOON_NS;

	(void)state;
	weights_table_end_loads(table);
	assert_true(clock_now_ns() < soon_ns);
	fixture_expect_failure(weights, -ECANCELED, "Nobody waits");
	weights_table_free(table);
}

/* What is announced never comes; what nobody refers to does not go for who is gone. */
static void who_is_gone_takes_nothing(void **state)
{
	struct ledger ledger;
	struct weights_table *table = table_with_idle(&ledger);
	int fd = fixture_open(fixture_file_of("more", 92));
	struct weights *more = fixture_begin(table, BOB, &fd, 1);
	struct weights_row rows[2];

	(void)state;
	while (weights_rows(table, 0, rows, 2) < 2 || rows[1].bytes == 0)
		fixture_moment();
	weights_unref(more);
	while (weights_rows(table, 0, rows, 2) > 1)
		fixture_moment();
	assert_int_equal(rows[0].bytes, 100 * KIB);
	assert_int_equal(fixture_n_memories, 1);
	close(fd);
	ledger_announce_no_more(&ledger, LEDGER_KV, 64 * KIB);
	table_with_idle_end(table, &ledger);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_who_asks_for_less_takes_nothing_from_who_asks_for_more),
		cmocka_unit_test(who_has_kv_is_woken_again_once_others_took_what_came_back),
		cmocka_unit_test(who_waits_for_others_to_ask_waits_no_longer_than_his_time),
		cmocka_unit_test(what_is_said_to_one_is_no_answer_to_the_next),
		cmocka_unit_test(weights_stay_where_what_comes_back_is_enough),
		cmocka_unit_test(weights_go_where_what_comes_back_is_not_enough),
		cmocka_unit_test(kv_that_is_to_go_is_what_does_not_come_back_anyway),
		cmocka_unit_test(what_comes_back_while_it_is_looked_at_is_not_missed),
		cmocka_unit_test(who_closes_what_waits_for_room_waits_no_more),
		cmocka_unit_test(loads_that_wait_for_room_end_with_the_table),
		cmocka_unit_test(who_is_gone_takes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	assert_int_equal(argc, 2);
	return fixture_run(argv[1], run);
}
