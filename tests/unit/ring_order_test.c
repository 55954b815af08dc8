/*
 * ring_order_test.c - nobody sleeps through a doorbell, in any order of what both sides do and of
 * when the other sees it.
 *
 * The code is the library's and the daemon's own: how an entry is published and waited for, how one
 * is completed, how the scheduler goes to sleep. Its atomics and the kernel's calls are steps of
 * tso.h, which tries all orders; a store that the other side sees late is one of them, which no
 * test between threads can bring about at will. Only the rings' words are told late: that entries
 * and completions are whole is ring_test's.
 */
#include "client/lib/lane/submit.h"
#include "client/lib/lane/wait.h"
#include "napping_daemon.h"
#include "tso.h"

#include <errno.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define DOORBELL_FD 1000000
#define BYTE_FD 1000001
#define N_ENTRIES 2

static struct abi_board board;
static struct abi_lane *shared;
static _Atomic uint32_t alive = 1;
static struct coppice connection;
static struct coppice_lane lane;

/* ---- the kernel's ---- */

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags);

/* A wait has no time limit: who is not woken sleeps for ever. */
long __wrap_syscall(long number, ...)
{
	va_list list;
	const void *word;
	long operation, value;

	va_start(list, number);
	word = va_arg(list, const void *);
	operation = va_arg(list, long) & INT32_MAX;
	value = va_arg(list, long);
	va_end(list);
	assert_int_equal(number, SYS_futex);
	if (operation == FUTEX_WAIT)
		tso_futex_wait(word, (uint32_t)value);
	else
		tso_futex_wake(word);
	return 0;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
	if (fd != DOORBELL_FD)
		return __real_write(fd, bytes, n);
	tso_flag_set(FLAG_DOORBELL);
	return (ssize_t)n;
}

/* All that there is. */
ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags)
{
	(void)bytes;
	(void)n;
	(void)flags;
	assert_int_equal(fd, BYTE_FD);
	tso_flag_clear(FLAG_BYTE);
	return -1;
}

/* ---- the client's programs ---- */

static void begin(void)
{
	connection = (struct coppice){
		.key = 80, .alive = &alive, .board = &board, .socket = -1, .doorbell = DOORBELL_FD};
	lane = (struct coppice_lane){.segment.shared = shared, .c = &connection, .fd = BYTE_FD};
}

static uint64_t submit(void)
{
	uint64_t ticket = 0;
	int r = coppice_nop(&lane, &ticket);

	if (r < 0)
		abort();
	return ticket;
}

static void submits_and_sleeps(void)
{
	begin();
	for (int i = 0; i < N_ENTRIES; i++) {
		if (coppice_wait(&lane, submit(), COPPICE_FOREVER) < 0)
			abort();
	}
}

static void submits_all_and_sleeps(void)
{
	uint64_t ticket = 0;

	begin();
	for (int i = 0; i < N_ENTRIES; i++)
		ticket = submit();
	if (coppice_wait(&lane, ticket, COPPICE_FOREVER) < 0)
		abort();
}

/* As client/coppice.h says of a pollable lane: arm, look, then wait for the byte. */
static void submits_and_polls(void)
{
	begin();
	for (int i = 0; i < N_ENTRIES; i++) {
		uint64_t ticket = submit();

		while (lane_done(&lane) < ticket) {
			coppice_lane_arm(&lane);
			if (lane_done(&lane) < ticket)
				tso_flag_await(FLAG_BYTE);
		}
	}
}

/* ---- tests ---- */

static int setup(void **state)
{
	(void)state;
	shared = aligned_alloc(128, sizeof(*shared));
	assert_non_null(shared);
	memset(shared, 0, sizeof(*shared));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(shared);
	return 0;
}

static void check(void (*client)(void), bool notifies)
{
	struct tso tso = {
		.words = {&shared->submitted, &shared->done, &shared->sleepers, &shared->notify,
			  &board.asleep},
		.programs = {client, napping_daemon},
	};

	napping_daemon_begin(&board, shared, N_ENTRIES, notifies);
	assert_true(tso_explore(&tso));
	print_message("%llu states\n", (unsigned long long)tso.n_states);
	assert_true(tso.n_states > 1000);
}

static void a_client_that_sleeps_and_a_daemon_that_does_wake_each_other(void **state)
{
	(void)state;
	check(submits_and_sleeps, false);
}

static void several_entries_are_not_slept_through(void **state)
{
	(void)state;
	check(submits_all_and_sleeps, false);
}

static void a_byte_that_was_wished_for_comes(void **state)
{
	(void)state;
	check(submits_and_polls, true);
}

/* ---- what finds it ---- */

static uint64_t left, right, saw_left, saw_right;
static bool has_fences;

static void store_then_look(uint64_t *mine, const uint64_t *other, uint64_t *ret_saw)
{
	tso_store(mine, 1);
	if (has_fences)
		tso_fence();
	*ret_saw = tso_load(other, sizeof(*other));
}

/* Whoever sees the other's word rings; who sees it not waits for that. */
static void goes_left(void)
{
	store_then_look(&left, &right, &saw_right);
	if (saw_right)
		tso_flag_set(0);
}

static void goes_right(void)
{
	store_then_look(&right, &left, &saw_left);
	if (!saw_left)
		tso_flag_await(0);
}

static void a_store_that_is_seen_late_is_found(void **state)
{
	struct tso tso = {.words = {&left, &right}, .programs = {goes_left, goes_right}};

	(void)state;
	has_fences = true;
	assert_true(tso_explore(&tso));
	has_fences = false;
	assert_false(tso_explore(&tso));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_that_is_seen_late_is_found),
		cmocka_unit_test_setup_teardown(
			a_client_that_sleeps_and_a_daemon_that_does_wake_each_other, setup,
			teardown),
		cmocka_unit_test_setup_teardown(several_entries_are_not_slept_through, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_byte_that_was_wished_for_comes, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
