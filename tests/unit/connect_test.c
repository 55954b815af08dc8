/*
 * connect_test.c - coppice_connect to somebody who listens and does not answer.
 */
#include "coppice.h"
#include "proto/channel.h"
#include "proto/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_NS UINT64_C(200000000)

struct silent {
	char path[64];
	int fd;
};

static int setup(void **state)
{
	struct silent *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	snprintf(s->path, sizeof(s->path), "/tmp/coppice-connect-%d", getpid());
	assert_int_equal(channel_listen(s->path, 0600, &s->fd), 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct silent *s = *state;

	close(s->fd);
	unlink(s->path);
	free(s);
	return 0;
}

static void assert_gives_up(const char *path)
{
	uint64_t begun_ns = clock_now_ns();
	struct coppice *c;

	assert_int_equal(coppice_connect_timeout(&c, path, LIMIT_NS), -ETIMEDOUT);
	assert_null(c);
	assert_true(clock_now_ns() - begun_ns >= LIMIT_NS);
	assert_non_null(strstr(coppice_explain(NULL), "answer"));
}

static void a_hello_that_nobody_answers_ends_at_its_time(void **state)
{
	struct silent *s = *state;

	assert_gives_up(s->path);
}

/* Until its listener has no room for another. */
static void queue_up(const struct silent *s)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, s->path);
	assert_int_equal(listen(s->fd, 1), 0);
	for (int r = 0; r == 0;) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
		assert_true(r == 0 || errno == EAGAIN);
	}
}

static void a_queue_that_nobody_serves_ends_at_its_time(void **state)
{
	struct silent *s = *state;

	queue_up(s);
	assert_gives_up(s->path);
}

/* To the socket's own limit 0 is none. */
static void who_has_no_time_does_not_wait_for_the_queue(void **state)
{
	struct silent *s = *state;
	int fd = -7;

	queue_up(s);
	alarm(20);
	assert_int_equal(channel_connect(s->path, 0, &fd), -ETIMEDOUT);
	alarm(0);
	assert_int_equal(fd, -7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_hello_that_nobody_answers_ends_at_its_time, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_queue_that_nobody_serves_ends_at_its_time, setup,
						teardown),
		cmocka_unit_test_setup_teardown(who_has_no_time_does_not_wait_for_the_queue, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
