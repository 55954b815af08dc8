/*
 * step_moves_test.c - from which states a step may go to which: all of them, as lane.h tells its
 * ways.
 */
#include "daemon/sched/core/lane.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* clang-format off */

/* x: it may. Columns are states to go to, in the order of the lines. */
static const struct {
	char may[2 * STEP_N_STATES];
	enum step_state from;
	const char *name;
} table[] = {
#define FROM(state) STEP_##state, #state
	/*F A R R H W I S C A I */
	{". x x x . x . . . x .", FROM(FREE)},
	{"x . x x . x . . . . .", FROM(AWAITING_INPUT)},
	{"x . . . . . . . . . .", FROM(REFUSED)},
	{"x . . . x x x . . . .", FROM(RUNNABLE)},
	{"x . . x . x . . . . .", FROM(HELD)},
	{"x . . . . . x x . . .", FROM(WAITING_TURN)},
	{"x . . x . x . . x . .", FROM(IN_BATCH)},
	{". . . . . x . x . . .", FROM(STREAMING)},
	{"x . . . . . . . . . .", FROM(COMPLETED)},
	{"x . . . . . . . . . x", FROM(AWAITING_PASS)},
	{"x . . . . . . . . x .", FROM(IN_PASS)},
#undef FROM
};

/* clang-format on */

static void a_step_moves_along_its_ways_alone(void **state)
{
	(void)state;
	for (int i = 0; i < STEP_N_STATES; i++)
		for (int j = 0; j < STEP_N_STATES; j++)
			if (step_may_move(table[i].from, table[j].from) !=
			    (table[i].may[2 * j] == 'x'))
				fail_msg("%s > %s", table[i].name, table[j].name);
}

static void every_state_has_its_line(void **state)
{
	bool has[STEP_N_STATES] = {false};

	(void)state;
	assert_int_equal(sizeof(table) / sizeof(table[0]), STEP_N_STATES);
	for (int i = 0; i < STEP_N_STATES; i++)
		has[table[i].from] = true;
	for (int i = 0; i < STEP_N_STATES; i++)
		assert_true(has[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_has_its_line),
		cmocka_unit_test(a_step_moves_along_its_ways_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
