/*
 * pass_ending_test.c - who sleeps until a pass ends is woken a moment before, where the backend
 * says when that is and cores are free.
 *
 * The linker puts this file's syscall before the one that wakes, which is counted.
 */
#include "school.h"

#include "daemon/sched/round.h"

#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define N_PROMPT (MAX_ROWS + 10) /* of two passes */

static _Atomic unsigned n_wakes;
static bool nears_end; /* the backend's run */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* Others wake threads of this process alone. */
long __wrap_syscall(long number, ...)
{
	va_list list;
	long a[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	n_wakes += number == SYS_futex && a[1] == FUTEX_WAKE;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static bool played_is_ending(struct backend *b, uint64_t id)
{
	(void)b;
	assert_int_equal(id, world.last_id);
	return nears_end;
}

static bool is_told(const struct pupil *p)
{
	return ring_is_soon(p->c.lane, p->c.ticket);
}

/* One asks for a token, the other for more than goes with one pass. Both sleep. */
static struct school *start_pass(void)
{
	struct school *s = school_new(0.01 * MS);

	n_wakes = 0;
	nears_end = false;
	s->program.is_ending = played_is_ending;
	school_start(s);
	s->h.sched->core.spins = true;
	s->h.sched->core.n_cores = 16;
	for (uint32_t i = 0; i < 2; i++)
		atomic_store(&join(s, 1, 0, 1)->c.lane->sleepers, 1);
	ask(&s->pupils[0], 1);
	ask(&s->pupils[1], N_PROMPT);
	for (uint32_t i = 0; world.n_passes == 0; i++) {
		assert_true(i < 1000);
		sched_round(s->h.sched);
		world.now_ns = world.n_passes ? world.now_ns : world.now_ns + ROUND_NS;
	}
	assert_true(world.now_ns < world.end_ns);
	assert_in_range(world.n_rows, 2, N_PROMPT); /* of both, and not all */
	return s;
}

static void go_rounds(struct school *s)
{
	for (uint32_t i = 0; i < 3; i++)
		sched_round(s->h.sched);
}

static void who_is_done_with_it_is_woken_once(void **state)
{
	struct school *s = start_pass();

	(void)state;
	go_rounds(s);
	assert_false(is_told(&s->pupils[0]));
	nears_end = true;
	go_rounds(s);
	assert_true(is_told(&s->pupils[0]));
	assert_false(has(&s->pupils[0]));
	assert_int_equal(n_wakes, 1);
	school_free(s);
}

static void who_goes_on_is_woken_with_his_last_pass(void **state)
{
	struct school *s = start_pass();

	(void)state;
	nears_end = true;
	go_rounds(s);
	assert_false(is_told(&s->pupils[1]));
	while (world.n_passes == 1)
		go_round(s);
	world.now_ns = world.end_ns - 1;
	assert_true(has(&s->pupils[0]));
	go_rounds(s);
	assert_true(is_told(&s->pupils[1]));
	assert_false(has(&s->pupils[1]));
	school_free(s);
}

static void who_is_awake_is_not_woken(void **state)
{
	struct school *s = start_pass();

	(void)state;
	atomic_store(&s->pupils[0].c.lane->sleepers, 0);
	nears_end = true;
	go_rounds(s);
	assert_true(is_told(&s->pupils[0]));
	assert_int_equal(n_wakes, 0);
	school_free(s);
}

static void nobody_is_woken_to_spin_where_no_core_is_free(void **state)
{
	struct school *s = start_pass();

	(void)state;
	s->h.sched->core.spins = false;
	nears_end = true;
	go_rounds(s);
	assert_false(is_told(&s->pupils[0]));
	assert_int_equal(n_wakes, 0);
	school_free(s);
}

/* All lanes may count as idle while a long pass goes on. */
static void nobody_is_woken_to_spin_where_there_are_fewer_cores_than_lanes(void **state)
{
	struct school *s = start_pass();

	(void)state;
	s->h.sched->core.n_cores = 2;
	nears_end = true;
	go_rounds(s);
	assert_false(is_told(&s->pupils[0]));
	s->h.sched->core.n_cores = 3;
	go_rounds(s);
	assert_true(is_told(&s->pupils[0]));
	school_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_done_with_it_is_woken_once),
		cmocka_unit_test(who_goes_on_is_woken_with_his_last_pass),
		cmocka_unit_test(who_is_awake_is_not_woken),
		cmocka_unit_test(nobody_is_woken_to_spin_where_no_core_is_free),
		cmocka_unit_test(nobody_is_woken_to_spin_where_there_are_fewer_cores_than_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
