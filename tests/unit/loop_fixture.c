/*
 * loop_fixture.c - set up and taken down for io_uring and for epoll, with an alarm that ends a test
 * which hangs, and a socket to listen and dial at.
 */
#include "loop_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

bool loop_has_uring(void)
{
	struct loop *loop;

	if (loop_new("io_uring", &loop) < 0)
		return false;
	loop_free(loop);
	return true;
}

static void on_alarm(struct loop_op *op, int result)
{
	struct context *context = op->user;

	if (result == 0) {
		print_error("the loop hangs\n");
		abort();
	}
	loop_stop(context->loop);
}

static void on_probe(struct loop_op *op, int result)
{
	struct probe *probe = op->user;

	assert_true(probe->n < 64);
	probe->last[probe->n] = !op->live;
	probe->results[probe->n++] = result;
	if (probe->also)
		probe->also(probe);
	if (probe->n == probe->stop_after)
		loop_stop(probe->context->loop);
}

struct probe loop_probe(struct context *context, unsigned stop_after)
{
	return (struct probe){.context = context, .stop_after = stop_after};
}

struct loop_op *loop_probe_op(struct probe *probe)
{
	probe->op.callback = on_probe;
	probe->op.user = probe;
	return &probe->op;
}

static int setup(void **state, const char *kind)
{
	struct context *context = calloc(1, sizeof(*context));

	if (!context || loop_new(kind, &context->loop) < 0)
		return -1;
	context->alarm = (struct loop_op){.callback = on_alarm, .user = context};
	loop_timer(context->loop, &context->alarm, 20000 * MS, 0);
	*state = context;
	return 0;
}

int loop_setup_uring(void **state)
{
	return setup(state, "io_uring");
}

int loop_setup_epoll(void **state)
{
	return setup(state, "epoll");
}

int loop_teardown(void **state)
{
	struct context *context = *state;

	loop_cancel(context->loop, &context->alarm);
	if (loop_run(context->loop) < 0 || context->alarm.live)
		return -1;
	loop_free(context->loop);
	free(context);
	return 0;
}

void loop_run_out(struct context *context)
{
	assert_int_equal(loop_run(context->loop), 0);
}

int loop_listener(struct sockaddr_un *ret_name, socklen_t *ret_bytes)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 16), 0);
	*ret_bytes = sizeof(*ret_name);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret_name, ret_bytes), 0);
	return fd;
}

int loop_dial(const struct sockaddr_un *name, socklen_t bytes)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)name, bytes), 0);
	return fd;
}
