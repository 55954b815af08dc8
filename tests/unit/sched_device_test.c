/* sched_device_test.c - what the scheduler does with a device: its arenas, its end. */
#include "daemon/sched/round.h"
#include "sched_fixture.h"
#include "daemon/control/arenas.h"
#include "daemon/control/verbs.h"
#include "daemon/sched/verbs/sessions.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
	struct backend_ops ops; /* the CPU's, and what a device has */
	uint32_t n_arenas;
	const char *fault;
} device;

static int device_arena_new(struct backend *b, uint64_t bytes, struct backend_arena *ret)
{
	(void)b;
	*ret = (struct backend_arena){.base = (uintptr_t)calloc(1, bytes),
				      .fd = -1,
				      .time_sliced = true};
	device.n_arenas++;
	return 0;
}

static void device_arena_free(struct backend *b, uint64_t base)
{
	(void)b;
	free((void *)(uintptr_t)base);
	device.n_arenas--;
}

static const char *device_fault(struct backend *b)
{
	(void)b;
	return device.fault;
}

static int device_completed(struct backend *b, uint64_t *ret_id)
{
	return device.fault ? -EIO : backend_cpu.completed(b, ret_id);
}

static int setup_device(void **state)
{
	struct fixture *f = fixture_new(true);

	device.ops = backend_cpu;
	device.ops.arena_new = device_arena_new;
	device.ops.arena_free = device_arena_free;
	device.ops.fault = device_fault;
	device.ops.completed = device_completed;
	device.fault = NULL;
	f->h.sched->core.ops = &device.ops;
	*state = f;
	return 0;
}

static int add_device_arena(struct fixture *f, struct client *c, uint32_t number)
{
	struct arena_call call = {.arena = number, .bytes = 2u << 20};
	struct sched_request add = {.serve = verb_arena_new.serve,
				    .session = c->session,
				    .room = &call};
	int r = harness_call(&f->h, &add);

	if (r < 0)
		assert_non_null(strstr(add.message, "backend = cuda"));
	return r;
}

static void a_backend_without_a_device_refuses_device_arenas(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(add_device_arena(f, &f->c, 2), -EOPNOTSUPP);
}

static void rows_in_device_arenas_are_checked_as_others(void **state)
{
	struct fixture *f = *state;
	struct abi_step_seq rec = client_step_seq(&f->c, f->seq, 4);

	assert_int_equal(add_device_arena(f, &f->c, 2), 0);
	rec.arena_in = rec.arena_out = 2;
	fixture_extend(f);
	assert_ends(client_step(&f->c, &rec, 0), 0, ABI_OK);
	rec.o = (2u << 20) - 4;
	assert_ends(client_step(&f->c, &rec, 1), -EINVAL, ABI_OUT_OF_ARENA);
}

static void device_arenas_outlive_a_session_until_nobody_has_them_open(void **state)
{
	struct fixture *f = *state;
	struct client other;

	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(add_device_arena(f, &other, 2), 0);
	assert_int_equal(add_device_arena(f, &other, 3), 0);

	struct session_end_call call = {.keep_device = true};
	struct sched_request end = {.serve = sched_session_end,
				    .session = other.session,
				    .room = &call};
	struct sched_request remove = {.serve = verb_arena_free.serve,
				       .session = other.session,
				       .room = &(struct arena_call){.arena = 3}};

	assert_int_equal(harness_call(&f->h, &remove), 0);
	assert_int_equal(device.n_arenas, 1);
	assert_int_equal(harness_call(&f->h, &end), 0);
	assert_ptr_equal(call.session, other.session);
	assert_int_equal(device.n_arenas, 1);
	assert_int_equal(harness_status(&f->h).n_sessions, 1);
	call.keep_device = false;
	assert_int_equal(harness_call(&f->h, &end), 0);
	assert_null(call.session);
	assert_int_equal(device.n_arenas, 0);
	client_unmap(&other);
}

static void device_arenas_that_are_kept_go_with_the_scheduler(void **state)
{
	struct fixture *f = *state;
	struct client other;

	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(add_device_arena(f, &other, 2), 0);
	struct session_end_call call = {.keep_device = true};
	struct sched_request end = {.serve = sched_session_end,
				    .session = other.session,
				    .room = &call};

	assert_int_equal(harness_call(&f->h, &end), 0);
	client_unmap(&other);
}

static int teardown_none_kept(void **state)
{
	fixture_teardown(state);
	assert_int_equal(device.n_arenas, 0);
	return 0;
}

static void a_failed_device_fails_all_that_is_open(void **state)
{
	struct fixture *f = *state;
	struct store_match match;
	struct client other;
	uint64_t first = f->c.ticket + 2;

	client_start(&other, &f->h, 1000, &fixture_shape, 1 << 20);
	assert_int_equal(client_open(&other, fixture_ids, 4, &f->seq, &match), 0);
	struct fixture g = {.h = f->h, .c = other, .seq = f->seq};

	fixture_extend(&g);
	fixture_submit_step(&g, 0, ABI_STEP_WORDS, 3); /* one that a stream will never make ready */
	fixture_submit_step(&g, 1, 0, 0); /* and one behind it */
	client_do(&f->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);
	device.fault = "it burns";
	client_submit(&f->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0);

	struct sched_request probe = {.serve = sched_probe};

	assert_int_equal(harness_call(&f->h, &probe), 0);
	assert_true(sched_failed(f->h.sched));
	assert_ends(client_wait(&g.c, g.c.ticket), -EIO, ABI_BACKEND_FAILED);
	assert_ends(ring_completion(g.c.lane, g.c.ticket - 1), -EIO, ABI_BACKEND_FAILED);
	assert_int_equal(fixture_done_word(&g, 3), 1);
	client_wait(&f->c, first);
	assert_ends(client_do(&f->c, (struct abi_entry){.kind = ABI_NOP}, NULL, 0), -EIO,
		    ABI_BACKEND_FAILED);
	client_end(&g.c);
}

static void a_batch_that_fails_for_good_fails_the_daemon(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;

	fixture_extend(f);
	ticket = fixture_submit_step(f, 0, 0, 0);
	device.fault = "it burns";
	assert_ends(client_wait(&f->c, ticket), -EIO, ABI_BACKEND_FAILED);
	assert_true(sched_failed(f->h.sched));
}

#define STEPPED(name) cmocka_unit_test_setup_teardown(name, fixture_setup_stepped, fixture_teardown)
#define DEVICE(name) cmocka_unit_test_setup_teardown(name, setup_device, teardown_none_kept)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STEPPED(a_backend_without_a_device_refuses_device_arenas),
		DEVICE(rows_in_device_arenas_are_checked_as_others),
		DEVICE(device_arenas_outlive_a_session_until_nobody_has_them_open),
		DEVICE(device_arenas_that_are_kept_go_with_the_scheduler),
		DEVICE(a_failed_device_fails_all_that_is_open),
		DEVICE(a_batch_that_fails_for_good_fails_the_daemon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
