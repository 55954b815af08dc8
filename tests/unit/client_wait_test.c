/*
 * client_wait_test.c - how libcoppice waits for a ticket: it spins as long as the board says, then
 * sleeps. Over a lane that this program serves itself.
 *
 * Nothing is timed: what is counted is how often the waiter looks at the clock before it sleeps,
 * and how often it sleeps. The linker puts the functions of this file around the library's; where a
 * test says so, the clock goes on by a microsecond whenever it is looked at.
 */
#include "client/lib/base/clock.h"
#include "client/lib/lane/lane.h"
#include "proto/arith.h"
#include "proto/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_US 100000000u /* spins beyond what any test lasts */
#define WAKES_MOST 1000u
#define CLOCKS_OF_A_SLEEP 2 /* its deadline, and what is left of it */
#define CLOCKS_BESIDE 5u /* those spun: at its begin, in looking for the daemon, and of a sleep */

/* Of the thread that waits. */
static _Thread_local unsigned n_clocks, n_clocks_before_sleep;
static _Thread_local unsigned n_sleeps;
static bool is_played; /* the clock */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

/* What the waiter has done so far, as the daemon's thread sees it. */
static _Atomic unsigned n_clocks_seen;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	atomic_store(&n_clocks_seen, ++n_clocks);
	if (is_played) {
		*ret = (struct timespec){.tv_sec = 1000, .tv_nsec = n_clocks * 1000L};
		return 0;
	}
	return __real_clock_gettime(id, ret);
}

long __wrap_syscall(long number, ...)
{
	va_list list;
	long a[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_futex && a[1] == FUTEX_WAIT && n_sleeps++ == 0)
		n_clocks_before_sleep = n_clocks;
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

struct fixture {
	struct coppice c;
	struct coppice_lane lane;
	struct abi_board board;
	_Atomic uint32_t alive;
	int daemon_end;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int ends[2];

	assert_non_null(f);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	f->alive = 1;
	f->c = (struct coppice){.key = 78,
				.alive = &f->alive,
				.board = &f->board,
				.socket = ends[0]};
	f->daemon_end = ends[1];
	f->lane.c = &f->c;
	f->lane.submitted = 1;
	f->lane.segment.shared = aligned_alloc(64, align_to(sizeof(struct abi_lane), 64));
	assert_non_null(f->lane.segment.shared);
	memset(f->lane.segment.shared, 0, sizeof(struct abi_lane));
	n_clocks = n_clocks_before_sleep = n_sleeps = 0;
	is_played = false;
	atomic_store(&n_clocks_seen, 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	close(f->c.socket);
	close(f->daemon_end);
	free(f->lane.segment.shared);
	free(f);
	return 0;
}

/* As the daemon completes the ticket. */
static void complete(struct abi_lane *shared)
{
	ring_complete(shared, 1, (struct ring_completion_words){0});
	if (ring_client_asleep(shared))
		__real_syscall(SYS_futex, ring_done_futex(shared), FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Once the client has counted itself among those who sleep. */
static void *complete_for_a_sleeper(void *arg)
{
	struct abi_lane *shared = arg;

	while (atomic_load(&shared->sleepers) == 0)
		sched_yield();
	complete(shared);
	return NULL;
}

/* Once the client has looked at the clock again and again. */
static void *complete_for_a_spinner(void *arg)
{
	while (atomic_load(&n_clocks_seen) < 20)
		sched_yield();
	complete(arg);
	return NULL;
}

/* Says that the ticket is soon done, until nobody sleeps any more; then waits for as many looks at
 * the clock as a spinner's. (One that has been kept waiting for too long sleeps again: then it has
 * as many in some slices.) */
static void *tell_a_sleeper(void *arg)
{
	struct abi_lane *shared = arg;
	unsigned n;

	while (atomic_load(&shared->sleepers) == 0)
		sched_yield();
	ring_tell_soon(shared, 1);
	for (uint32_t i = 0; i < WAKES_MOST && ring_client_asleep(shared); i++) {
		__real_syscall(SYS_futex, ring_done_futex(shared), FUTEX_WAKE, 1, NULL, NULL, 0);
		sched_yield();
	}
	n = atomic_load(&n_clocks_seen);
	while (atomic_load(&n_clocks_seen) < n + 20)
		sched_yield();
	complete(shared);
	return NULL;
}

/* Says so, and does not complete it. */
static void *tell_in_vain(void *arg)
{
	struct abi_lane *shared = arg;

	while (atomic_load(&shared->sleepers) == 0)
		sched_yield();
	ring_tell_soon(shared, 1);
	__real_syscall(SYS_futex, ring_done_futex(shared), FUTEX_WAKE, 1, NULL, NULL, 0);
	return NULL;
}

static void wait_while(struct fixture *f, void *(*daemon)(void *))
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, daemon, f->lane.segment.shared), 0);
	assert_int_equal(coppice_wait(&f->lane, 1, COPPICE_FOREVER), 0);
	pthread_join(thread, NULL);
}

static void where_the_board_says_so_it_spins_and_does_not_sleep(void **state)
{
	struct fixture *f = *state;

	f->board.client_spin_us = PATIENCE_US;
	wait_while(f, complete_for_a_spinner);
	assert_int_equal(n_sleeps, 0);
}

static void where_the_board_says_so_it_sleeps_at_once(void **state)
{
	struct fixture *f = *state;

	f->board.client_spin_us = 0;
	wait_while(f, complete_for_a_sleeper);
	assert_true(n_sleeps == 0 || n_clocks_before_sleep <= CLOCKS_OF_A_SLEEP);
}

/* It does not spin beyond the board's time, nor beyond its own. */
static void it_sleeps_when_it_has_spun_enough(void **state)
{
	struct fixture *f = *state;

	f->board.client_spin_us = 1;
	wait_while(f, complete_for_a_sleeper);
	assert_true(n_clocks > CLOCKS_OF_A_SLEEP);
}

static void it_spins_as_many_microseconds_as_the_board_says(void **state)
{
	struct fixture *f = *state;

	is_played = true;
	f->board.client_spin_us = 100;
	assert_int_equal(coppice_wait(&f->lane, 1, 1000 * NS_PER_US), -ETIMEDOUT);
	assert_in_range(n_clocks_before_sleep, 100, 100 + CLOCKS_BESIDE);
}

static void it_spins_no_longer_than_it_is_to_wait(void **state)
{
	struct fixture *f = *state;

	is_played = true;
	f->board.client_spin_us = 100;
	assert_int_equal(coppice_wait(&f->lane, 1, 10 * NS_PER_US), -ETIMEDOUT);
	assert_in_range(n_clocks_before_sleep, 10, 10 + CLOCKS_BESIDE);
}

static void what_is_soon_done_wakes_it_and_it_spins(void **state)
{
	struct fixture *f = *state;

	f->board.client_spin_us = 1;
	wait_while(f, tell_a_sleeper);
	assert_int_equal(f->lane.segment.shared->sleepers, 0);
}

/* It asks once more for the daemon, and for the time that is left. */
static void what_is_not_done_soon_after_all_lets_it_sleep_again(void **state)
{
	struct fixture *f = *state;
	pthread_t thread;

	f->board.client_spin_us = 1;
	assert_int_equal(pthread_create(&thread, NULL, tell_in_vain, f->lane.segment.shared), 0);
	assert_int_equal(coppice_wait(&f->lane, 1, 20 * NS_PER_MS), -ETIMEDOUT);
	pthread_join(thread, NULL);
	assert_true(n_sleeps >= 2);
	assert_int_equal(f->lane.segment.shared->sleepers, 0);
}

/* Where no core is free it sleeps on. */
static void where_it_is_not_to_spin_soon_is_no_reason_to_wake(void **state)
{
	struct fixture *f = *state;

	is_played = true;
	f->board.client_spin_us = 0;
	ring_tell_soon(f->lane.segment.shared, 1);
	assert_int_equal(coppice_wait(&f->lane, 1, 10 * NS_PER_US), -ETIMEDOUT);
	assert_true(n_sleeps > 0);
	assert_in_range(n_clocks_before_sleep, 0, CLOCKS_OF_A_SLEEP);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(where_the_board_says_so_it_spins_and_does_not_sleep),
		TEST(where_the_board_says_so_it_sleeps_at_once),
		TEST(it_sleeps_when_it_has_spun_enough),
		TEST(it_spins_as_many_microseconds_as_the_board_says),
		TEST(it_spins_no_longer_than_it_is_to_wait),
		TEST(what_is_soon_done_wakes_it_and_it_spins),
		TEST(what_is_not_done_soon_after_all_lets_it_sleep_again),
		TEST(where_it_is_not_to_spin_soon_is_no_reason_to_wake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
