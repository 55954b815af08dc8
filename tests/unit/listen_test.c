/*
 * listen_test.c - who listens where somebody else is just about to end, or to begin. The linker
 * puts functions around the system's: before poll that somebody hangs up, and listens no more;
 * flock tells that he has the directory; and at each bind and listen is looked whether we have it.
 */
#include "proto/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define TOO_OFTEN 1000 /* 10 s: he who asks so often starts as good as never */

static int dying = -1; /* listens; -1: nobody does any more */
static char dir[32], path[64];

/* Another daemon of the directory has it locked until it was asked for so often. */
static struct {
	int n_asked, n_refused;
	unsigned n_unlocked; /* binds and listens without it */
} other;

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __real_bind(int fd, const struct sockaddr *address, socklen_t bytes);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t bytes);
int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (dying >= 0) {
		close(accept(dying, NULL, NULL));
		close(dying);
		dying = -1;
	}
	return __real_poll(fds, n, timeout_ms);
}

int __wrap_flock(int fd, int how)
{
	if (!(how & LOCK_EX))
		return __real_flock(fd, how);
	if (other.n_asked++ < other.n_refused) {
		errno = EWOULDBLOCK;
		return -1;
	}
	return __real_flock(fd, how);
}

/* By another who asks for the directory now: a lock belongs to whoever opened it. */
static bool is_locked(void)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool locked = __real_flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

	close(fd);
	return locked;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t bytes)
{
	other.n_unlocked += !is_locked();
	return __real_bind(fd, address, bytes);
}

int __wrap_listen(int fd, int backlog)
{
	other.n_unlocked += !is_locked();
	return __real_listen(fd, backlog);
}

static int setup(void **state)
{
	(void)state;
	memset(&other, 0, sizeof(other));
	strcpy(dir, "/tmp/listen-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/socket", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static void who_hangs_up_and_is_gone_leaves_the_path(void **state)
{
	int fd = -1;

	(void)state;
	assert_int_equal(channel_listen(path, 0600, &dying), 0);
	assert_int_equal(channel_listen(path, 0600, &fd), 0);
	assert_int_equal(dying, -1);
	close(fd);
}

static void who_listens_has_the_directory_locked_meanwhile(void **state)
{
	int fd;

	(void)state;
	other.n_refused = 3;
	assert_int_equal(channel_listen(path, 0600, &fd), 0);
	assert_int_equal(other.n_asked, 4);
	assert_int_equal(other.n_unlocked, 0);
	assert_false(is_locked()); /* it is given back */
	close(fd);
}

static void a_stale_socket_is_replaced_under_the_lock(void **state)
{
	int fd;

	(void)state;
	assert_int_equal(channel_listen(path, 0600, &fd), 0);
	close(fd);
	assert_int_equal(channel_listen(path, 0600, &fd), 0);
	assert_int_equal(other.n_unlocked, 0);
	close(fd);
}

/* Anybody may have the lock: it keeps nobody from starting. */
static void who_never_gets_the_lock_listens_without(void **state)
{
	int fd;

	(void)state;
	other.n_refused = TOO_OFTEN;
	assert_int_equal(channel_listen(path, 0600, &fd), 0);
	assert_in_range(other.n_asked, 2, TOO_OFTEN - 1);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_hangs_up_and_is_gone_leaves_the_path),
		TEST(who_listens_has_the_directory_locked_meanwhile),
		TEST(a_stale_socket_is_replaced_under_the_lock),
		TEST(who_never_gets_the_lock_listens_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
