/*
 * lent_test.c - who has a descriptor that was lent is known, wherever it is: open in a process, in
 * several, or on its way; and it counts for its user until nobody has it.
 */
#include "daemon/session/lent.h"

#include "proto/channel.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ALICE 1001u
#define BOB 1002u
#define MANY 3000u /* what the set has is more than it is read into at first */

static int setup(void **state)
{
	static struct lent lent;

	lent_init(&lent);
	*state = &lent;
	return 0;
}

static int teardown(void **state)
{
	lent_done(*state);
	return 0;
}

/* A file that somebody is to have; the caller's. */
static int lend(struct lent *lent, uid_t uid, uint64_t bytes, struct loan **ret)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(lent_new(lent, fd, uid, bytes, ret), 0);
	assert_non_null(*ret);
	return fd;
}

static void assert_kept(struct lent *lent, uid_t uid, uint64_t of_user, uint64_t of_all)
{
	lent_look(lent);
	assert_int_equal(lent_kept_bytes(lent, &uid), of_user);
	assert_int_equal(lent_kept_bytes(lent, NULL), of_all);
}

static void what_has_ended_counts_until_it_is_closed(void **state)
{
	struct lent *lent = *state;
	struct loan *a, *b;
	int of_a = lend(lent, ALICE, 5, &a), of_b = lend(lent, BOB, 7, &b), again = dup(of_a);

	assert_kept(lent, ALICE, 0, 0);
	lent_end(lent, a);
	assert_kept(lent, ALICE, 5, 5);
	lent_end(lent, b);
	assert_kept(lent, ALICE, 5, 12);
	close(of_a);
	assert_kept(lent, ALICE, 5, 12);
	close(again);
	assert_kept(lent, ALICE, 0, 7);
	close(of_b);
	assert_kept(lent, BOB, 0, 0);
}

static void what_is_closed_before_its_end_does_not_count(void **state)
{
	struct loan *loan;

	close(lend(*state, ALICE, 5, &loan));
	lent_end(*state, loan);
	assert_kept(*state, ALICE, 0, 0);
	lent_end(*state, NULL);
}

/* Another file has the number meanwhile. */
static void a_number_is_no_file(void **state)
{
	struct loan *a, *b;
	int of_a = lend(*state, ALICE, 5, &a), of_b;

	close(of_a);
	of_b = lend(*state, ALICE, 7, &b);
	assert_int_equal(of_b, of_a);
	lent_end(*state, a);
	assert_kept(*state, ALICE, 0, 0);
	lent_end(*state, b);
	assert_kept(*state, ALICE, 7, 7);
	close(of_b);
}

static void another_process_has_it(void **state)
{
	struct loan *loan;
	int fd = lend(*state, ALICE, 5, &loan);
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	close(fd);
	lent_end(*state, loan);
	assert_kept(*state, ALICE, 5, 5);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_kept(*state, ALICE, 0, 0);
}

static void it_is_on_its_way(void **state)
{
	struct loan *loan;
	int ends[2], fd = lend(*state, ALICE, 5, &loan);

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(channel_send(ends[0], "x", 1, &(struct channel_fds){&fd, 1}, 0), 0);
	close(fd);
	lent_end(*state, loan);
	assert_kept(*state, ALICE, 5, 5);
	close(ends[0]);
	assert_kept(*state, ALICE, 5, 5);
	close(ends[1]);
	assert_kept(*state, ALICE, 0, 0);
}

/* Every tenth is open. */
static void many_are_told_apart(void **state)
{
	struct loan *loans[MANY];
	int fds[MANY];

	for (uint32_t i = 0; i < MANY; i++) {
		fds[i] = lend(*state, i % 3 ? ALICE : BOB, 1, &loans[i]);
		if (i % 10)
			close(fds[i]);
	}
	for (uint32_t i = 0; i < MANY; i++)
		lent_end(*state, loans[i]);
	assert_kept(*state, BOB, MANY / 30, MANY / 10);
	close(fds[100]);
	assert_kept(*state, ALICE, 2 * MANY / 30 - 1, MANY / 10 - 1);
	for (uint32_t i = 0; i < MANY; i += 10)
		if (i != 100)
			close(fds[i]);
	assert_kept(*state, ALICE, 0, 0);
}

/* Of a file in memory nobody can wait for anything. */
static void what_cannot_be_told_counts_until_its_end(void **state)
{
	int fd = memfd_create("lent", MFD_CLOEXEC);
	struct loan *loan;

	assert_int_equal(lent_new(*state, fd, ALICE, 5, &loan), 0);
	assert_null(loan);
	lent_end(*state, loan);
	assert_kept(*state, ALICE, 0, 0);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_has_ended_counts_until_it_is_closed),
		TEST(what_is_closed_before_its_end_does_not_count),
		TEST(a_number_is_no_file),
		TEST(another_process_has_it),
		TEST(it_is_on_its_way),
		TEST(many_are_told_apart),
		TEST(what_cannot_be_told_counts_until_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
