/* decode_slow_test.c - what coppice-bench decode says of slow tokens, by tokens made up here. */
#include "tests/bench/decode_slow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define N_PROCESSES 4u
#define TICK (10 * MS) /* each process has a token of 6 ms each so often */

static struct slow_token tokens[N_PROCESSES * 100];
static struct slow_event events[16];
static uint32_t n_tokens, n_events;

static void add_token(uint32_t tick, uint64_t ms, uint32_t process)
{
	tokens[n_tokens++] = (struct slow_token){tick * TICK, tick * TICK + ms * MS, process};
}

static void add_event(enum slow_kind kind, uint64_t begin_ms, uint64_t end_ms, uint32_t process)
{
	events[n_events++] = (struct slow_event){begin_ms * MS, end_ms * MS, kind, process};
}

static int begin_plain(void **state)
{
	(void)state;
	n_tokens = n_events = 0;
	for (uint32_t tick = 0; tick < 20; tick++)
		for (uint32_t i = 0; i < N_PROCESSES; i++)
			add_token(tick, 6, i);
	return 0;
}

static struct slow_figures counted(void)
{
	struct slow_figures f;

	slow_count(tokens, n_tokens, events, n_events, N_PROCESSES, &f);
	return f;
}

static void without_events_all_is_beside_nothing(void **state)
{
	(void)state;
	const struct slow_figures f = counted();

	assert_int_equal(f.n, 80);
	assert_true(f.p50_ms == 6);
	assert_int_equal(f.of[SLOW_NOTHING].n, 80);
	assert_true(f.of[SLOW_NOTHING].most_ms == 6);
	assert_int_equal(f.n_slow, 0);
}

static void slow_is_what_takes_1_3_times_as_long_as_half_do(void **state)
{
	(void)state;
	add_token(30, 7, 0);
	add_token(31, 8, 0);
	const struct slow_figures f = counted();

	assert_int_equal(f.n_slow, 1);
	assert_int_equal(f.of[SLOW_NOTHING].n_slow, 1);
	assert_true(f.of[SLOW_NOTHING].most_ms == 8);
}

static void a_token_counts_with_what_overlaps_it(void **state)
{
	(void)state;
	add_event(SLOW_STAYS, 26, 52, N_PROCESSES); /* tokens end at 26, begin at 30, 40, 50 */
	add_event(SLOW_WEIGHTS, 103, 104, N_PROCESSES);
	add_event(SLOW_LEAVES, 117, 119, N_PROCESSES); /* in none */
	const struct slow_figures f = counted();

	assert_int_equal(f.of[SLOW_STAYS].n, 3 * N_PROCESSES);
	assert_int_equal(f.of[SLOW_WEIGHTS].n, N_PROCESSES);
	assert_int_equal(f.of[SLOW_LEAVES].n, 0);
	assert_int_equal(f.of[SLOW_NOTHING].n, 16 * N_PROCESSES);
}

static void of_several_the_first_kind_counts(void **state)
{
	(void)state;
	add_event(SLOW_STAYS, 0, 200, N_PROCESSES);
	add_event(SLOW_PROMPT, 21, 25, N_PROCESSES);
	add_event(SLOW_PROGRAM, 20, 24, N_PROCESSES);
	const struct slow_figures f = counted();

	assert_int_equal(f.of[SLOW_PROMPT].n, N_PROCESSES);
	assert_int_equal(f.of[SLOW_PROGRAM].n, 0);
	assert_int_equal(f.of[SLOW_STAYS].n, 19 * N_PROCESSES);
}

static void a_long_event_before_short_ones_is_not_passed_over(void **state)
{
	(void)state;
	add_event(SLOW_STAYS, 0, 195, N_PROCESSES);
	for (uint32_t i = 0; i < 8; i++)
		add_event(SLOW_ANEW, 10 * i, 10 * i + 2, N_PROCESSES);
	const struct slow_figures f = counted();

	assert_int_equal(f.of[SLOW_ANEW].n, 8 * N_PROCESSES);
	assert_int_equal(f.of[SLOW_STAYS].n, 12 * N_PROCESSES);
}

static void its_own_turn_is_nothing_beside_a_token(void **state)
{
	(void)state;
	add_event(SLOW_ANEW, 31, 35, 2);
	const struct slow_figures f = counted();

	assert_int_equal(f.of[SLOW_ANEW].n, N_PROCESSES - 1);
}

static void late_alone_is_who_has_a_slow_token_when_others_have_not(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < N_PROCESSES; i++)
		add_token(30, 9, i); /* all */
	add_token(40, 9, 1); /* one */
	add_token(50, 9, 1); /* half of them are not alone */
	add_token(50, 9, 3);
	const struct slow_figures f = counted();

	assert_int_equal(f.n_slow, 7);
	assert_int_equal(f.n_late_alone, 1);
}

static void only_so_many_events_are_kept(void **state)
{
	static struct slow_events kept;
	const struct slow_event e = {1, 2, SLOW_ANEW, 0};

	(void)state;
	for (uint32_t i = 0; i < SLOW_EVENTS + 3; i++)
		slow_note(&kept, &e);
	assert_int_equal(kept.n, SLOW_EVENTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(without_events_all_is_beside_nothing, begin_plain),
		cmocka_unit_test_setup(slow_is_what_takes_1_3_times_as_long_as_half_do,
				       begin_plain),
		cmocka_unit_test_setup(a_token_counts_with_what_overlaps_it, begin_plain),
		cmocka_unit_test_setup(of_several_the_first_kind_counts, begin_plain),
		cmocka_unit_test_setup(a_long_event_before_short_ones_is_not_passed_over,
				       begin_plain),
		cmocka_unit_test_setup(its_own_turn_is_nothing_beside_a_token, begin_plain),
		cmocka_unit_test_setup(late_alone_is_who_has_a_slow_token_when_others_have_not,
				       begin_plain),
		cmocka_unit_test_setup(only_so_many_events_are_kept, begin_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
