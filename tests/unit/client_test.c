/*
 * client_test.c - libcoppice against a coppiced of its own for each test: entries, steps, tickets,
 * and what is refused. argv[1] is the daemon's program.
 */
#include "client_fixture.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define N_TREE 1024u /* of a draft tree, at most */

/* The next so many allocations of this thread fail; the linker puts this around calloc. */
static _Thread_local uint32_t n_to_fail;

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (n_to_fail == 0)
		return __real_calloc(n, bytes);
	n_to_fail--;
	return NULL;
}

/* The longest futex wait of this process; the linker puts this around syscall. */
static _Atomic uint64_t longest_sleep_ns;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	const struct timespec *time;
	va_list list;
	long a[6];

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	time = (const struct timespec *)a[3];
	if (number == SYS_futex && a[1] == FUTEX_WAIT && time) {
		uint64_t ns = (uint64_t)time->tv_sec * 1000 * MS + (uint64_t)time->tv_nsec;
		longest_sleep_ns = ns > longest_sleep_ns ? ns : longest_sleep_ns;
	}
	return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void entries_complete_in_order(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	for (uint64_t i = 1; i <= 1000; i++) {
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
		assert_int_equal(ticket, i);
		assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
		assert_int_equal(coppice_poll(f->lane, ticket, &result), 0);
		assert_int_equal(result.ticket, ticket);
		assert_int_equal(result.status, 0);
	}
}

static void a_full_lane_says_so_and_empties(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	daemon_pause(f);
	for (int i = 0; i < 256; i++)
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), -EAGAIN);
	assert_explained(f, "256 entries");
	assert_int_equal(coppice_poll(f->lane, ticket, &result), -EAGAIN);
	assert_int_equal(coppice_wait(f->lane, ticket, 20 * MS), -ETIMEDOUT);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), 0);
}

static void a_waiter_looks_around_every_100_ms(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;

	daemon_pause(f);
	longest_sleep_ns = 0;
	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, 450 * MS), -ETIMEDOUT);
	assert_true(longest_sleep_ns == 100 * MS);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
}

static void a_result_stays_for_256_tickets(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;
	uint64_t ticket;

	for (int i = 0; i < 256; i++) {
		assert_int_equal(coppice_nop(f->lane, &ticket), 0);
		assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	}
	assert_int_equal(coppice_poll(f->lane, 1, &result), 0);
	assert_int_equal(coppice_nop(f->lane, NULL), 0);
	assert_int_equal(coppice_poll(f->lane, 1, &result), -ESTALE);
	assert_int_equal(coppice_poll(f->lane, 2, &result), 0);
}

static void tickets_that_never_were_are_refused(void **state)
{
	struct fixture *f = *state;
	struct coppice_result result;

	assert_int_equal(coppice_poll(f->lane, 1, &result), -EINVAL);
	assert_int_equal(coppice_wait(f->lane, 0, 0), -EINVAL);
}

static void assert_well(struct fixture *f, uint64_t ticket)
{
	if (coppice_wait(f->lane, ticket, COPPICE_FOREVER) != 0)
		fail_msg("%s", coppice_explain(f->c));
}

/* Bodies of ever other lengths, up to the largest, go round the arena many times with several in
 * flight. */
static void bodies_go_round_the_arena_unharmed(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	uint64_t last = 0;
	uint64_t checked = 0;

	for (uint32_t i = 0; i < 200; i++) {
		uint32_t n = i % 5 ? 1 + i * 7919 % 20000 : CLIENT_IDS;
		int r;

		while (last - checked > 128) /* results of 256 tickets stay */
			assert_well(f, ++checked);
		while ((r = coppice_seq_draft(seq, f->ids, NULL, n, &last)) == -EAGAIN)
			assert_well(f, ++checked);
		assert_int_equal(r, 0);
		while ((r = coppice_seq_trim(seq, 0, &last)) == -EAGAIN)
			assert_well(f, ++checked);
		assert_int_equal(r, 0);
	}
	while (checked < last)
		assert_well(f, ++checked);
	coppice_seq_close(seq);
}

/* One token sees itself alone: o is v, and lse the score. */
static void a_step_of_one_token_returns_its_v(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	float *rows = coppice_arena_base(f->arena);
	uint64_t ticket;

	for (int i = 0; i < 48; i++)
		rows[i] = (float)(i % 16);
	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	for (int i = 0; i < 16; i++)
		assert_float_equal(rows[48 + i], (float)i, 1e-6);
	assert_float_equal(*part.lse, 1240.0f / 4, 1e-3);
	coppice_seq_close(seq);
}

static void a_step_that_waits_returns_its_status(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.size = sizeof(step), .seqs = &part, .n_seqs = 1};
	uint64_t ticket = 0;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step_wait(f->lane, &step, COPPICE_FOREVER, &ticket), 0);
	assert_int_equal(ticket, 2);
	assert_int_equal(coppice_step_wait(f->lane, &step, COPPICE_FOREVER, NULL), -EINVAL);
	assert_explained(f, "no live tokens");
	step.n_seqs = 0;
	assert_int_equal(coppice_step_wait(f->lane, &step, COPPICE_FOREVER, &ticket), -EINVAL);
	assert_int_equal(ticket, 2);
	coppice_seq_close(seq);
}

/* The ticket tells whether it was submitted: then it is in flight still. */
static void a_step_that_waits_has_a_time_limit(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket = 0, unsubmitted = 0;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	daemon_pause(f);
	assert_int_equal(coppice_step_wait(f->lane, &step, 20 * MS, &ticket), -ETIMEDOUT);
	assert_int_equal(ticket, 2);
	while (coppice_nop(f->lane, NULL) == 0)
		;
	assert_int_equal(coppice_step_wait(f->lane, &step, 20 * MS, &unsubmitted), -ETIMEDOUT);
	assert_int_equal(unsubmitted, 0);
	kill(f->daemon, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	/* and finds room in a lane that is full */
	while (coppice_nop(f->lane, NULL) == 0)
		;
	assert_int_equal(coppice_step_wait(f->lane, &step, COPPICE_FOREVER, NULL), -EINVAL);
	assert_explained(f, "no live tokens");
	coppice_seq_close(seq);
}

static void pointers_outside_arenas_are_named(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	float elsewhere[16] = {0};
	struct coppice_step_seq parts[2] = {client_part_of(f, seq, 1), client_part_of(f, seq, 1)};
	struct coppice_step step = {.seqs = parts, .n_seqs = 2};

	parts[1].v = elsewhere;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "v of sequence 1 does not lie in an arena");
	parts[1].v = (char *)coppice_arena_base(f->arena) + coppice_arena_bytes(f->arena);
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	parts[1].v = NULL;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	assert_explained(f, "v of sequence 1 is NULL");
	step.n_seqs = 0;
	assert_int_equal(coppice_step(f->lane, &step, NULL), -EINVAL);
	coppice_seq_close(seq);
}

static void a_failed_entry_is_explained_to_who_waits(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_step_seq part = client_part_of(f, seq, 1);
	struct coppice_step step = {.layer = 7, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 1, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), -EINVAL);
	assert_explained(f, "step of layer 7 (ticket 2): sequence 0: this layer is not the next");
	coppice_seq_close(seq);
}

static void nothing_to_do_is_refused(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	struct coppice_seq *none;
	struct coppice_match match;
	struct coppice_arena *arena;

	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 0, 0, &none, &match), -EINVAL);
	assert_int_equal(coppice_seq_open(f->lane, 77, f->ids, 1, 0, &none, &match), -EINVAL);
	assert_explained(f, "model 77");
	assert_int_equal(coppice_seq_extend(seq, f->ids, 0, NULL), -EINVAL);
	assert_explained(f, "no tokens");
	assert_int_equal(coppice_seq_extend(seq, f->ids, CLIENT_IDS + 1, NULL), -EINVAL);
	assert_int_equal(coppice_arena_new(f->c, COPPICE_HOST, 0, &arena), -EINVAL);
	coppice_seq_close(seq);
}

static void extensions_are_as_long_as_promised(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 3);
	uint32_t parents[N_TREE + 1];
	uint64_t ticket;

	for (uint32_t i = 0; i <= N_TREE; i++)
		parents[i] = i - 1;
	assert_int_equal(coppice_seq_extend(seq, f->ids, CLIENT_IDS, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	assert_int_equal(coppice_seq_trim(seq, 0, NULL), 0);
	assert_int_equal(coppice_seq_draft(seq, f->ids, parents, N_TREE + 1, NULL), -EINVAL);
	assert_explained(f, "1024");
	assert_int_equal(coppice_seq_draft(seq, f->ids, parents, N_TREE, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
	coppice_seq_close(seq);
}

static void a_fork_finds_room_in_a_full_lane(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 3);
	struct coppice_seq *other;

	while (coppice_nop(f->lane, NULL) == 0)
		;
	assert_int_equal(coppice_seq_fork(seq, &other), 0);
	coppice_seq_close(seq);
	coppice_seq_close(other);
}

/* The daemon allows a session 1,024 sequences. */
static void a_fork_without_memory_leaves_no_handle_behind(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 3);
	struct coppice_seq *other;

	for (int i = 0; i < 1100; i++) {
		n_to_fail = 1;
		assert_int_equal(coppice_seq_fork(seq, &other), -ENOMEM);
		assert_int_equal(n_to_fail, 0);
	}
	assert_explained(f, "out of memory");
	assert_int_equal(coppice_seq_fork(seq, &other), 0);
	coppice_seq_close(seq);
	coppice_seq_close(other);
}

static void a_pollable_lane_rings_once_for_a_wish(void **state)
{
	struct fixture *f = *state;
	struct coppice_lane *lane;
	struct pollfd p = {.events = POLLIN};
	uint64_t ticket;

	assert_int_equal(coppice_lane_fd(f->lane), -1);
	assert_int_equal(coppice_lane_new_pollable(f->c, &lane), 0);
	p.fd = coppice_lane_fd(lane);
	for (int i = 0; i < 100; i++) {
		coppice_lane_arm(lane);
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(coppice_nop(lane, &ticket), 0);
		assert_int_equal(poll(&p, 1, 10000), 1);
		assert_int_equal(coppice_wait(lane, ticket, COPPICE_FOREVER), 0);
	}
	coppice_lane_free(lane);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(entries_complete_in_order),
		TEST(a_full_lane_says_so_and_empties),
		TEST(a_waiter_looks_around_every_100_ms),
		TEST(a_result_stays_for_256_tickets),
		TEST(tickets_that_never_were_are_refused),
		TEST(bodies_go_round_the_arena_unharmed),
		TEST(a_step_of_one_token_returns_its_v),
		TEST(a_step_that_waits_returns_its_status),
		TEST(a_step_that_waits_has_a_time_limit),
		TEST(pointers_outside_arenas_are_named),
		TEST(a_failed_entry_is_explained_to_who_waits),
		TEST(nothing_to_do_is_refused),
		TEST(extensions_are_as_long_as_promised),
		TEST(a_fork_finds_room_in_a_full_lane),
		TEST(a_fork_without_memory_leaves_no_handle_behind),
		TEST(a_pollable_lane_rings_once_for_a_wish),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	client_daemon = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
