/*
 * loop_test.c - both loops through the same cases, on real sockets, pipes and processes.
 */
#include "loop_fixture.h"

#include "daemon/base/log.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static void accept_takes_every_connection(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 5);
	struct sockaddr_un name;
	socklen_t bytes;
	int fd = loop_listener(&name, &bytes), clients[5];

	loop_accept(context->loop, loop_probe_op(&probe), fd);
	for (int i = 0; i < 5; i++)
		clients[i] = loop_dial(&name, bytes);
	loop_run_out(context);
	for (int i = 0; i < 5; i++) {
		assert_true(probe.results[i] >= 0);
		assert_false(probe.last[i]);
		assert_int_equal(write(clients[i], "x", 1), 1);
		close(probe.results[i]);
		close(clients[i]);
	}
	probe.stop_after = 6;
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.results[5], -ECANCELED);
	assert_true(probe.last[5]);
	close(fd);
}

static void accept_ends_when_descriptors_run_out(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1), tick = loop_probe(context, 1);
	struct rlimit saved, none;
	struct sockaddr_un name;
	socklen_t bytes;
	int fd = loop_listener(&name, &bytes), client = loop_dial(&name, bytes);

	loop_timer(context->loop, loop_probe_op(&tick), 0, 0);
	loop_run_out(context); /* what the loop itself needs it has now */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
	none = (struct rlimit){3, saved.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	loop_accept(context->loop, loop_probe_op(&probe), fd);
	loop_run_out(context);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
	assert_int_equal(probe.results[0], -EMFILE);
	assert_true(probe.last[0]);
	probe.stop_after = 2;
	loop_accept(context->loop, &probe.op, fd);
	loop_run_out(context);
	assert_true(probe.results[1] >= 0);
	close(probe.results[1]);
	loop_cancel(context->loop, &probe.op);
	probe.stop_after = 3;
	loop_run_out(context);
	close(client);
	close(fd);
}

struct packet {
	struct msghdr msg;
	struct iovec iov;
	char bytes[8];
};

static struct msghdr *packet_of(struct packet *packet)
{
	packet->iov = (struct iovec){packet->bytes, sizeof(packet->bytes)};
	packet->msg = (struct msghdr){.msg_iov = &packet->iov, .msg_iovlen = 1};
	return &packet->msg;
}

static void pair_of(int pair[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

static void recvmsg_takes_one_packet_and_ends(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};
	int pair[2];

	pair_of(pair);
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	assert_int_equal(write(pair[1], "abc", 3), 3);
	assert_int_equal(write(pair[1], "defg", 4), 4);
	loop_run_out(context);
	assert_int_equal(probe.results[0], 3);
	assert_true(probe.last[0]);
	assert_memory_equal(packet.bytes, "abc", 3);
	probe.stop_after = 2;
	loop_recvmsg(context->loop, &probe.op, pair[0], packet_of(&packet));
	loop_run_out(context);
	assert_int_equal(probe.results[1], 4);
	close(pair[0]);
	close(pair[1]);
}

static void recvmsg_says_when_a_packet_was_cut(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};
	int pair[2];

	pair_of(pair);
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	assert_int_equal(write(pair[1], "0123456789", 10), 10);
	loop_run_out(context);
	assert_int_equal(probe.results[0], 8);
	assert_true(packet.msg.msg_flags & MSG_TRUNC);
	close(pair[0]);
	close(pair[1]);
}

static void recvmsg_sees_a_hang_up(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};
	int pair[2];

	pair_of(pair);
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	close(pair[1]);
	loop_run_out(context);
	assert_int_equal(probe.results[0], 0);
	close(pair[0]);
}

static void receive_again(struct probe *probe)
{
	struct packet *packet = (struct packet *)probe->op.msg;

	if (probe->results[probe->n - 1] > 0)
		loop_recvmsg(probe->context->loop, &probe->op, probe->op.fd, packet_of(packet));
}

static void an_ended_operation_starts_again_in_its_callback(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 31);
	struct packet packet = {0};
	int pair[2];

	pair_of(pair);
	probe.also = receive_again;
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	for (int i = 0; i < 30; i++)
		assert_int_equal(write(pair[1], "x", 1), 1);
	close(pair[1]);
	loop_run_out(context);
	assert_int_equal(probe.results[29], 1);
	assert_int_equal(probe.results[30], 0);
	close(pair[0]);
}

static void a_cancelled_recvmsg_ends_and_leaves_the_packet(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};
	struct probe tick = loop_probe(context, 1);
	char byte;
	int pair[2];

	pair_of(pair);
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	loop_timer(context->loop, loop_probe_op(&tick), 1 * MS, 0);
	loop_run_out(context); /* it is under way now */
	loop_cancel(context->loop, &probe.op);
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.n, 1);
	assert_int_equal(probe.results[0], -ECANCELED);
	assert_true(probe.last[0]);
	assert_int_equal(write(pair[1], "x", 1), 1);
	assert_int_equal(read(pair[0], &byte, 1), 1);
	close(pair[0]);
	close(pair[1]);
}

static void cancelling_before_the_loop_has_looked_ends_too(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};
	int pair[2];

	pair_of(pair);
	loop_recvmsg(context->loop, loop_probe_op(&probe), pair[0], packet_of(&packet));
	loop_cancel(context->loop, &probe.op);
	assert_int_equal(probe.n, 0);
	loop_run_out(context);
	assert_int_equal(probe.results[0], -ECANCELED);
	loop_cancel(context->loop, &probe.op); /* not live: nothing */
	close(pair[0]);
	close(pair[1]);
}

static void drain_event(struct probe *probe)
{
	uint64_t n;

	if (probe->results[probe->n - 1] > 0)
		assert_int_equal(read(probe->op.fd, &n, sizeof(n)), sizeof(n));
}

static void ring_event(struct probe *probe)
{
	uint64_t one = 1;

	assert_int_equal(write(*(int *)probe->op.msg, &one, sizeof(one)), sizeof(one));
}

static void poll_reports_an_eventfd_each_time(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 3), tick = loop_probe(context, 0);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	probe.also = drain_event;
	loop_poll(context->loop, loop_probe_op(&probe), fd, POLLIN);
	tick.also = ring_event;
	tick.op.msg = (struct msghdr *)&fd;
	loop_timer(context->loop, loop_probe_op(&tick), 2 * MS, 5 * MS);
	loop_run_out(context);
	assert_int_equal(probe.results[2] & POLLIN, POLLIN);
	assert_false(probe.last[2]);
	tick.also = NULL;
	probe.stop_after = probe.n + 1;
	loop_cancel(context->loop, &tick.op);
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	while (tick.op.live) {
		tick.stop_after = tick.n + 1;
		loop_run_out(context);
	}
	close(fd);
}

static void poll_repeats_what_was_not_read(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 3);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	loop_poll(context->loop, loop_probe_op(&probe), fd, POLLIN);
	loop_run_out(context);
	assert_int_equal(probe.results[2] & POLLIN, POLLIN);
	probe.stop_after = 4;
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.results[3], -ECANCELED);
	close(fd);
}

static void poll_sees_a_process_end(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_true(fd >= 0);
	loop_poll(context->loop, loop_probe_op(&probe), fd, POLLIN);
	kill(pid, SIGKILL);
	loop_run_out(context);
	assert_int_equal(probe.results[0] & POLLIN, POLLIN);
	probe.stop_after = probe.n + 1;
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_false(probe.op.live);
	waitpid(pid, NULL, 0);
	close(fd);
}

static void cancel_self(struct probe *probe)
{
	loop_cancel(probe->context->loop, &probe->op);
}

static void a_callback_may_cancel_its_own_operation(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 2);
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	probe.also = cancel_self;
	loop_poll(context->loop, loop_probe_op(&probe), fd, POLLIN);
	loop_run_out(context);
	assert_int_equal(probe.results[0] & POLLIN, POLLIN);
	assert_int_equal(probe.results[1], -ECANCELED);
	assert_true(probe.last[1]);
	close(fd);
}

static void a_timer_fires_once_and_not_early(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	uint64_t begin = clock_now_ns();

	loop_timer(context->loop, loop_probe_op(&probe), 20 * MS, 0);
	loop_run_out(context);
	assert_true(clock_now_ns() - begin >= 20 * MS);
	assert_int_equal(probe.results[0], 0);
	assert_true(probe.last[0]);
}

static void a_periodic_timer_goes_on_until_cancelled(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 4);
	uint64_t begin = clock_now_ns();

	loop_timer(context->loop, loop_probe_op(&probe), 5 * MS, 10 * MS);
	loop_run_out(context);
	assert_true(clock_now_ns() - begin >= 34 * MS);
	assert_int_equal(probe.results[3], 0);
	assert_false(probe.last[3]);
	probe.stop_after = 5;
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.results[4], -ECANCELED);
	assert_true(probe.last[4]);
}

static void a_timer_of_no_time_fires(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);

	loop_timer(context->loop, loop_probe_op(&probe), 0, 0);
	loop_run_out(context);
	assert_int_equal(probe.results[0], 0);
}

static void a_bad_descriptor_ends_with_its_error(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1);
	struct packet packet = {0};

	loop_recvmsg(context->loop, loop_probe_op(&probe), 9999, packet_of(&packet));
	loop_run_out(context);
	assert_int_equal(probe.results[0], -EBADF);
	assert_true(probe.last[0]);
}

#define MANY 600 /* more than the submission queue takes at once */

struct many {
	struct probe probe;
	struct packet packet;
	int pair[2];
};

static void free_when_over(struct loop_op *op, int result)
{
	struct many *many = op->user;
	struct context *context = many->probe.context;

	assert_true(result == -ECANCELED || result == 1 || result == 0);
	assert_false(op->live);
	close(many->pair[0]);
	close(many->pair[1]);
	free(many);
	if (--*(unsigned *)context->alarm.msg == 0)
		loop_stop(context->loop);
}

/* Half of them have a packet waiting, all are cancelled while under way, each is freed in its last
 * callback: what the address sanitizer watches. */
static void many_operations_are_freed_as_they_end(void **state)
{
	struct context *context = *state;
	unsigned left = MANY;
	struct many *all[MANY];
	struct probe tick = loop_probe(context, 1);

	context->alarm.msg = (struct msghdr *)&left;
	for (int i = 0; i < MANY; i++) {
		all[i] = calloc(1, sizeof(*all[i]));
		assert_non_null(all[i]);
		all[i]->probe.context = context;
		pair_of(all[i]->pair);
		all[i]->probe.op = (struct loop_op){.callback = free_when_over, .user = all[i]};
		loop_recvmsg(context->loop, &all[i]->probe.op, all[i]->pair[0],
			     packet_of(&all[i]->packet));
	}
	loop_timer(context->loop, loop_probe_op(&tick), 5 * MS, 0);
	loop_run_out(context);
	for (int i = 0; i < MANY; i++) {
		if (i % 2)
			assert_int_equal(write(all[i]->pair[1], "x", 1), 1);
		loop_cancel(context->loop, &all[i]->probe.op);
	}
	loop_run_out(context);
	assert_int_equal(left, 0);
}

/* Whatever else is there meanwhile. */
static void soon_is_the_next_turn(void **state)
{
	struct context *context = *state;
	struct probe probe = loop_probe(context, 1), tick = loop_probe(context, 0);

	loop_timer(context->loop, loop_probe_op(&tick), 60000 * MS, 0);
	loop_soon(context->loop, loop_probe_op(&probe));
	assert_int_equal(probe.n, 0);
	loop_run_out(context);
	assert_int_equal(probe.results[0], 0);
	assert_true(probe.last[0]);
	probe.stop_after = 2;
	loop_soon(context->loop, &probe.op);
	loop_cancel(context->loop, &probe.op);
	loop_run_out(context);
	assert_int_equal(probe.results[1], -ECANCELED);
	tick.stop_after = 1;
	loop_cancel(context->loop, &tick.op);
	loop_run_out(context);
}

static void loops_have_names(void **state)
{
	struct loop *loop;

	(void)state;
	assert_int_equal(loop_new("epoll", &loop), 0);
	assert_string_equal(loop_name(loop), "epoll");
	loop_free(loop);
	assert_int_equal(loop_new("auto", &loop), 0);
	assert_true(strcmp(loop_name(loop), "io_uring") == 0 ||
		    strcmp(loop_name(loop), "epoll") == 0);
	loop_free(loop);
	loop_free(NULL);
}

#define CASE(kind, name) cmocka_unit_test_setup_teardown(name, loop_setup_##kind, loop_teardown)
#define CASES(kind) \
	{ \
		CASE(kind, accept_takes_every_connection), \
			CASE(kind, accept_ends_when_descriptors_run_out), \
			CASE(kind, recvmsg_takes_one_packet_and_ends), \
			CASE(kind, recvmsg_says_when_a_packet_was_cut), \
			CASE(kind, recvmsg_sees_a_hang_up), \
			CASE(kind, an_ended_operation_starts_again_in_its_callback), \
			CASE(kind, a_cancelled_recvmsg_ends_and_leaves_the_packet), \
			CASE(kind, cancelling_before_the_loop_has_looked_ends_too), \
			CASE(kind, poll_reports_an_eventfd_each_time), \
			CASE(kind, poll_repeats_what_was_not_read), \
			CASE(kind, poll_sees_a_process_end), \
			CASE(kind, a_callback_may_cancel_its_own_operation), \
			CASE(kind, a_timer_fires_once_and_not_early), \
			CASE(kind, a_periodic_timer_goes_on_until_cancelled), \
			CASE(kind, a_timer_of_no_time_fires), CASE(kind, soon_is_the_next_turn), \
			CASE(kind, a_bad_descriptor_ends_with_its_error), \
			CASE(kind, many_operations_are_freed_as_they_end) \
	}

int main(void)
{
	const struct CMUnitTest general[] = {cmocka_unit_test(loops_have_names)};
	const struct CMUnitTest uring[] = CASES(uring);
	const struct CMUnitTest epoll[] = CASES(epoll);
	int failures = cmocka_run_group_tests_name("loop", general, NULL, NULL);

	failures += cmocka_run_group_tests_name("loop on epoll", epoll, NULL, NULL);
	if (loop_has_uring())
		failures += cmocka_run_group_tests_name("loop on io_uring", uring, NULL, NULL);
	else
		print_message("io_uring is refused here: its cases are left out\n");
	return failures;
}
