/* errands_test.c - who has how much of a turn of the loop, on both loops. */
#include "daemon/session/errands.h"

#include "loop_fixture.h"
#include "proto/clock.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 32

struct fixture;

struct task {
	struct errand errand;
	struct fixture *f;
	struct errands_user *user; /* NULL: it does not come again */
	uint64_t takes_ns;
	unsigned served; /* as which of all; 0: not yet */
};

struct fixture {
	struct context *context;
	struct errands errands;
	struct errands_user *a, *b;
	struct task many[MANY], one;
	unsigned n_served;
};

static void on_task(struct errand *errand)
{
	struct task *task = errand->of;
	uint64_t end_ns = clock_now_ns() + task->takes_ns;

	assert_false(errand->waits);
	task->served = ++task->f->n_served;
	while (clock_now_ns() < end_ns)
		continue;
	if (task->user)
		errand_add(task->user, errand);
}

static void on_last(struct errand *errand)
{
	struct task *task = errand->of;

	on_task(errand);
	loop_stop(task->f->context->loop);
}

static struct fixture *begin(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->context = *state;
	errands_init(&f->errands, f->context->loop);
	f->a = errands_user_ref(&f->errands, 1);
	f->b = errands_user_ref(&f->errands, 2);
	for (int i = 0; i < MANY; i++)
		f->many[i] = (struct task){.errand = {.serve = on_task, .of = &f->many[i]}, .f = f};
	f->one = (struct task){.errand = {.serve = on_last, .of = &f->one}, .f = f};
	return f;
}

static void end(struct fixture *f)
{
	errands_user_unref(f->a);
	errands_user_unref(f->b);
	assert_true(LIST_EMPTY(&f->errands.users));
	free(f);
}

/* Each takes all that a user has of a turn. */
static void add_long_ones(struct fixture *f)
{
	for (int i = 0; i < MANY; i++) {
		f->many[i].takes_ns = ERRANDS_NS;
		errand_add(f->a, &f->many[i].errand);
	}
}

static void run_out_of_errands(struct fixture *f)
{
	while (f->errands.soon.live) {
		struct probe probe = loop_probe(f->context, 1);

		loop_soon(f->context->loop, loop_probe_op(&probe));
		loop_run_out(f->context);
	}
}

static void a_user_is_one_whoever_asks(void **state)
{
	struct fixture *f = begin(state);

	assert_ptr_equal(errands_user_ref(&f->errands, 1), f->a);
	assert_ptr_not_equal(f->a, f->b);
	errands_user_unref(f->a);
	end(f);
}

static void who_has_much_to_do_keeps_nobody_waiting_who_has_little(void **state)
{
	struct fixture *f = begin(state);

	add_long_ones(f);
	errand_add(f->b, &f->one.errand);
	assert_int_equal(f->n_served, 0);
	assert_true(f->one.errand.waits);
	loop_run_out(f->context);
	assert_true(f->one.served <= 2);
	run_out_of_errands(f);
	assert_int_equal(f->n_served, MANY + 1);
	for (int i = 1; i < MANY; i++)
		assert_true(f->many[i].served > f->many[i - 1].served);
	end(f);
}

static void the_loop_looks_at_events_between_turns(void **state)
{
	struct fixture *f = begin(state);
	struct probe probe = loop_probe(f->context, 1);
	int fd = eventfd(1, EFD_CLOEXEC);

	add_long_ones(f);
	loop_poll(f->context->loop, loop_probe_op(&probe), fd, POLLIN);
	loop_run_out(f->context);
	assert_true(f->n_served <= 2);
	probe.stop_after = probe.n + 1;
	loop_cancel(f->context->loop, &probe.op);
	while (probe.op.live)
		loop_run_out(f->context);
	run_out_of_errands(f);
	close(fd);
	end(f);
}

/* They take next to nothing, and are there again at once. */
static void errands_that_come_again_and_again_end_with_the_turn(void **state)
{
	struct fixture *f = begin(state);

	for (int i = 0; i < MANY; i++) {
		f->many[i].user = f->a;
		errand_add(f->a, &f->many[i].errand);
	}
	errand_add(f->b, &f->one.errand);
	loop_run_out(f->context);
	assert_true(f->one.served > 0);
	for (int i = 0; i < MANY; i++)
		f->many[i].user = NULL;
	run_out_of_errands(f);
	for (int i = 0; i < MANY; i++)
		assert_false(f->many[i].errand.waits);
	end(f);
}

static void on_leave(struct errand *errand)
{
	struct task *task = errand->of;

	errands_user_unref(task->f->a);
	task->f->a = NULL;
	on_last(errand);
}

static void a_user_may_go_with_his_last_errand(void **state)
{
	struct fixture *f = begin(state);

	f->one.errand.serve = on_leave;
	errand_add(f->a, &f->one.errand);
	loop_run_out(f->context);
	assert_int_equal(f->one.served, 1);
	assert_ptr_equal(LIST_FIRST(&f->errands.users), f->b);
	end(f);
}

#define CASE(kind, name) cmocka_unit_test_setup_teardown(name, loop_setup_##kind, loop_teardown)
#define CASES(kind) \
	{ \
		CASE(kind, a_user_is_one_whoever_asks), \
			CASE(kind, who_has_much_to_do_keeps_nobody_waiting_who_has_little), \
			CASE(kind, the_loop_looks_at_events_between_turns), \
			CASE(kind, errands_that_come_again_and_again_end_with_the_turn), \
			CASE(kind, a_user_may_go_with_his_last_errand) \
	}

int main(void)
{
	const struct CMUnitTest epoll[] = CASES(epoll);
	const struct CMUnitTest uring[] = CASES(uring);
	int failures = cmocka_run_group_tests_name("errands on epoll", epoll, NULL, NULL);
	struct loop *loop;

	if (loop_new("io_uring", &loop) < 0) {
		print_message("io_uring is refused here: its cases are left out\n");
		return failures;
	}
	loop_free(loop);
	return failures + cmocka_run_group_tests_name("errands on io_uring", uring, NULL, NULL);
}
