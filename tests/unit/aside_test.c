/* aside_test.c - two threads, a part of the work each. */
#include "daemon/weights/aside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_CALLS 1000u

struct sum {
	uint32_t n, sum;
	pthread_t by;
};

static void add(void *arg)
{
	struct sum *s = arg;

	s->sum += ++s->n;
	s->by = pthread_self();
}

/* As its owner has it: each half writes what the other one does not. */
static void add_on_both_sides(struct aside *a, struct sum *theirs, struct sum *ours)
{
	for (uint32_t i = 0; i < N_CALLS; i++) {
		aside_begin(a, add, theirs);
		add(ours);
		aside_end(a);
		assert_int_equal(theirs->sum, ours->sum);
	}
}

static void each_call_has_ended_when_its_end_returns(void **state)
{
	struct aside a;
	struct sum theirs = {0}, ours = {0};

	(void)state;
	aside_init(&a);
	assert_true(a.there);
	add_on_both_sides(&a, &theirs, &ours);
	aside_done(&a);
	assert_int_equal(theirs.n, N_CALLS);
	assert_false(pthread_equal(theirs.by, pthread_self()));
}

static void without_a_thread_the_owner_does_both(void **state)
{
	struct aside a = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct sum theirs = {0}, ours = {0};

	(void)state;
	add_on_both_sides(&a, &theirs, &ours);
	aside_done(&a);
	assert_int_equal(theirs.n, N_CALLS);
	assert_true(pthread_equal(theirs.by, pthread_self()));
}

static void who_asks_for_nothing_ends_it(void **state)
{
	struct aside a;

	(void)state;
	aside_init(&a);
	aside_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_has_ended_when_its_end_returns),
		cmocka_unit_test(without_a_thread_the_owner_does_both),
		cmocka_unit_test(who_asks_for_nothing_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
