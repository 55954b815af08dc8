/*
 * listen_test.c - who listens where somebody else is just about to end. The linker puts a poll
 * around the system's before which that somebody hangs up, and listens no more.
 */
#include "proto/channel.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int dying = -1; /* listens; -1: nobody does any more */

int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (dying >= 0) {
		close(accept(dying, NULL, NULL));
		close(dying);
		dying = -1;
	}
	return __real_poll(fds, n, timeout_ms);
}

static void who_hangs_up_and_is_gone_leaves_the_path(void **state)
{
	char path[64];
	int fd = -1;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/coppice-listen-%d", getpid());
	assert_int_equal(channel_listen(path, 0600, &dying), 0);
	int r = channel_listen(path, 0600, &fd);
	unlink(path);
	assert_int_equal(r, 0);
	assert_int_equal(dying, -1);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_hangs_up_and_is_gone_leaves_the_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
