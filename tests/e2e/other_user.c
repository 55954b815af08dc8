/*
 * other_user.c - a fork that becomes another user, and a pipe by which it is heard of.
 */
#include "other_user.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LIFE_S 280 /* less than any test may take */

struct other other_start(const struct harness *h, uid_t uid, other_life *life)
{
	int pipe_fds[2];
	struct other other;

	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	other.pid = fork();
	assert_true(other.pid >= 0);
	if (other.pid == 0) {
		alarm(LIFE_S);
		if (!become_user(uid))
			_exit(99);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failure ends it: it runs no tests */
		_exit(life(h, pipe_fds[1]));
	}
	close(pipe_fds[1]);
	other.said = pipe_fds[0];
	return other;
}

int other_stay(int said, unsigned n)
{
	unsigned char byte = (unsigned char)n;

	if (write(said, &byte, 1) != 1)
		return 98;
	for (;;)
		pause();
}

unsigned other_ready(const struct other *other)
{
	unsigned char byte;

	assert_int_equal(read(other->said, &byte, 1), 1);
	return byte;
}

void other_kill(struct other *other)
{
	kill(other->pid, SIGKILL);
	assert_int_equal(harness_wait(other->pid), -SIGKILL);
	close(other->said);
}

void other_join(struct other *other)
{
	assert_int_equal(harness_wait(other->pid), 0);
	close(other->said);
}

const Coppice__Reply *client_hello(struct client *c)
{
	Coppice__Hello hello = COPPICE__HELLO__INIT;

	hello.abi_version = ABI_VERSION;
	client_send(c, &(Coppice__Request){PROTOBUF_C_MESSAGE_INIT(&coppice__request__descriptor),
					   .hello = &hello});
	return client_receive(c);
}
