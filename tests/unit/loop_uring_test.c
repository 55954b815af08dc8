/*
 * loop_uring_test.c - what io_uring says seldom: its answers are altered on their way, by a
 * function that the linker puts in the place of the library's.
 */
#include "loop_fixture.h"

#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct loop_op *interrupted; /* what it does is said to have been interrupted */

int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	int r = __real_io_uring_submit_and_wait(ring, n);
	struct io_uring_cqe *cqe;
	unsigned head;

	io_uring_for_each_cqe(ring, head,
			      cqe) if (interrupted && io_uring_cqe_get_data(cqe) == interrupted)
		cqe->res = -EINTR;
	return r;
}

/* Between two times the kernel does not have it. */
static void one_that_is_to_be_asked_for_again_ends_when_it_is_cancelled(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1), turn = loop_probe(context, 1);
	char bytes[8];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(write(pair[1], "abc", 3), 3);
	interrupted = loop_probe_op(&probe);
	loop_recvmsg(context->loop, &probe.op, pair[0], &msg);
	loop_soon(context->loop, loop_probe_op(&turn));
	loop_run_out(context);
	assert_int_equal(probe.n, 0);
	interrupted = NULL;
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.results[0], -ECANCELED);
	assert_true(probe.last[0]);
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			one_that_is_to_be_asked_for_again_ends_when_it_is_cancelled,
			loop_setup_uring, loop_teardown),
	};
	struct loop *loop;

	if (loop_new("io_uring", &loop) < 0) {
		print_message("io_uring is refused here: nothing is tested\n");
		return 0;
	}
	loop_free(loop);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
