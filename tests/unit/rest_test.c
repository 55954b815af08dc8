/* rest_test.c - whether the scheduler spins, and what it tells clients of it. */
#include "daemon/sched/rest.h"
#include "proto/arith.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SPIN_US 70u
#define LOOK_NS UINT64_C(1000000) /* after which it looks at the cores again */

/* A scheduler of no lanes that is about to stop, so that it does not sleep. */
struct fixture {
	struct config config;
	struct abi_board board;
	struct sched sched;
};

static int set_up(void **state)
{
	struct fixture *f = aligned_alloc(64, align_to(sizeof(*f), 64));

	assert_non_null(f);
	*f = (struct fixture){.config.spin_us = SPIN_US};
	f->sched.board = &f->board;
	f->sched.core.config = &f->config;
	f->sched.core.n_cores = 1;
	f->sched.window.core = &f->sched.core;
	f->sched.input_wait.core = &f->sched.core;
	f->sched.stopping = true;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static void rest_at(struct fixture *f, uint64_t now_ns)
{
	f->sched.core.now_ns = now_ns;
	rest(&f->sched);
}

static void test_clients_spin_while_a_core_is_free(void **state)
{
	struct fixture *f = *state;

	rest_at(f, 0);
	assert_int_equal(f->board.client_spin_us, SPIN_US);
	assert_int_equal(f->sched.spin_ns, SPIN_US * 1000);
	assert_true(f->sched.core.spins);
	f->sched.core.n_cores = 0;
	rest_at(f, LOOK_NS - 1);
	assert_int_equal(f->board.client_spin_us, SPIN_US);
	rest_at(f, LOOK_NS);
	assert_int_equal(f->board.client_spin_us, 0);
	assert_int_equal(f->sched.spin_ns, 0);
	assert_false(f->sched.core.spins);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_clients_spin_while_a_core_is_free, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
