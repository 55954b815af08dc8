/*
 * loop_turns_test.c - what a turn of either loop has at most, that nobody waits for who has much.
 */
#include "loop_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define KNOCKS 12

struct door {
	struct probe accepts;
	struct loop_op turn;
	unsigned n_seen, most; /* accepted, by the last turn, and in one */
};

static void on_turn(struct loop_op *op, int result)
{
	struct door *door = op->user;
	unsigned n = door->accepts.n - door->n_seen;

	assert_int_equal(result, 0);
	door->most = n > door->most ? n : door->most;
	door->n_seen = door->accepts.n;
	if (door->n_seen < KNOCKS)
		loop_soon(door->accepts.context->loop, op);
	else
		loop_stop(door->accepts.context->loop);
}

static void of_all_who_wait_to_be_accepted_one_is_in_a_turn(void **state)
{
	struct context *context = *state;
	struct door door = {.accepts = loop_probe(context, 0),
			    .turn = {.callback = on_turn, .user = &door}};
	struct sockaddr_un name;
	socklen_t bytes;
	int fd = loop_listener(&name, &bytes), clients[KNOCKS];

	for (int i = 0; i < KNOCKS; i++)
		clients[i] = loop_dial(&name, bytes);
	loop_accept(context->loop, loop_probe_op(&door.accepts), fd);
	loop_soon(context->loop, &door.turn);
	loop_run_out(context);
	assert_int_equal(door.most, 1);
	for (int i = 0; i < KNOCKS; i++) {
		close(door.accepts.results[i]);
		close(clients[i]);
	}
	door.accepts.stop_after = KNOCKS + 1;
	loop_cancel(context->loop, &door.accepts.op);
	loop_run_out(context);
	close(fd);
}

/* It never has a turn for itself: others' events are seen in between. */
static void start_again(struct probe *probe)
{
	if (probe->n < probe->stop_after)
		loop_soon(probe->context->loop, &probe->op);
}

static void what_is_soon_again_and_again_keeps_no_event_waiting(void **state)
{
	struct context *context = *state;
	struct probe again = loop_probe(context, 60), seen = loop_probe(context, 1);
	int fd = eventfd(1, EFD_CLOEXEC);

	again.also = start_again;
	loop_poll(context->loop, loop_probe_op(&seen), fd, POLLIN);
	loop_soon(context->loop, loop_probe_op(&again));
	loop_run_out(context);
	assert_int_equal(seen.n, 1);
	assert_true(again.n < 10);
	loop_cancel(context->loop, &seen.op);
	loop_cancel(context->loop, &again.op);
	again.also = NULL;
	again.stop_after = again.n + 1;
	loop_run_out(context);
	seen.stop_after = seen.n + 1;
	if (seen.op.live)
		loop_run_out(context);
	close(fd);
}

#define CASE(kind, name) cmocka_unit_test_setup_teardown(name, loop_setup_##kind, loop_teardown)
#define CASES(kind) \
	{ \
		CASE(kind, of_all_who_wait_to_be_accepted_one_is_in_a_turn), \
			CASE(kind, what_is_soon_again_and_again_keeps_no_event_waiting) \
	}

int main(void)
{
	const struct CMUnitTest uring[] = CASES(uring);
	const struct CMUnitTest epoll[] = CASES(epoll);
	int failures = cmocka_run_group_tests_name("turns on epoll", epoll, NULL, NULL);

	if (loop_has_uring())
		failures += cmocka_run_group_tests_name("turns on io_uring", uring, NULL, NULL);
	else
		print_message("io_uring is refused here: its cases are left out\n");
	return failures;
}
