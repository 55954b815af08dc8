/* aside_test.c - two threads, a part of the work each. */
#include "daemon/base/aside.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_CALLS 1000u

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*body)(void *),
			  void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(thread, attr, body, arg);
}

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
	aside_init(&a, "test");
	add_on_both_sides(&a, &theirs, &ours);
	aside_done(&a);
	assert_int_equal(theirs.n, N_CALLS);
	assert_false(pthread_equal(theirs.by, pthread_self()));
}

static void without_a_thread_the_owner_does_both(void **state)
{
	struct aside a;
	struct sum theirs = {0}, ours = {0};

	(void)state;
	no_threads = true;
	aside_init(&a, "test");
	add_on_both_sides(&a, &theirs, &ours);
	aside_done(&a);
	assert_int_equal(theirs.n, N_CALLS);
	assert_true(pthread_equal(theirs.by, pthread_self()));
	assert_false(a.there);
	no_threads = false;
}

struct gate {
	_Atomic bool open;
	uint32_t n;
};

static void pass(void *arg)
{
	struct gate *gate = arg;

	while (!atomic_load(&gate->open))
		sched_yield();
	gate->n++;
}

static void one_that_is_under_way_is_looked_at_and_waited_for(void **state)
{
	struct gate gate = {0};
	struct aside a;

	(void)state;
	aside_init(&a, "test");
	assert_false(aside_is_under_way(&a));
	aside_begin(&a, pass, &gate);
	assert_true(aside_is_under_way(&a));
	atomic_store(&gate.open, true);
	while (aside_is_under_way(&a))
		sched_yield();
	assert_int_equal(gate.n, 1);
	for (uint32_t i = 0; i < N_CALLS; i++)
		aside_begin(&a, pass, &gate);
	aside_done(&a);
	assert_int_equal(gate.n, 1 + N_CALLS);
}

static void who_asks_for_nothing_ends_it(void **state)
{
	struct aside a;

	(void)state;
	aside_init(&a, NULL);
	aside_done(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_call_has_ended_when_its_end_returns),
		cmocka_unit_test(without_a_thread_the_owner_does_both),
		cmocka_unit_test(one_that_is_under_way_is_looked_at_and_waited_for),
		cmocka_unit_test(who_asks_for_nothing_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
