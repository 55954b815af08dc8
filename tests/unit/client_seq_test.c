/*
 * client_seq_test.c - libcoppice's sequences against a coppiced of its own for each test: how long
 * they are, several opened at once, and waits that do not block. argv[1] is the daemon's program.
 */
#include "client_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void assert_length(struct coppice_seq *seq, uint32_t n_tokens, uint32_t n_live)
{
	uint32_t tokens, live;

	assert_int_equal(coppice_seq_length(seq, &tokens), 0);
	assert_int_equal(coppice_seq_live(seq, &live), 0);
	assert_int_equal(tokens, n_tokens);
	assert_int_equal(live, n_live);
}

/* Of the fixture's model of one layer: all the live tokens' rows. */
static int step_all(struct fixture *f, struct coppice_seq *seq, uint32_t n)
{
	struct coppice_step_seq part = client_part_of(f, seq, n);
	struct coppice_step step = {.seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	return coppice_wait(f->lane, ticket, COPPICE_FOREVER);
}

static void await(struct fixture *f, uint64_t ticket)
{
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), 0);
}

static void a_sequence_grows_by_what_is_computed(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	uint64_t ticket;

	assert_length(seq, 0, 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids, 8, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 0, 8);
	assert_int_equal(step_all(f, seq, 8), 0);
	assert_length(seq, 8, 0);
	assert_int_equal(coppice_seq_trim(seq, 5, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 5, 0);
	coppice_seq_close(seq);
}

static void a_draft_counts_once_it_is_accepted(void **state)
{
	static const uint32_t indices[] = {0, 1};
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 1);
	uint64_t ticket;

	assert_int_equal(coppice_seq_draft(seq, f->ids, NULL, 4, NULL), 0);
	assert_int_equal(step_all(f, seq, 4), 0);
	assert_length(seq, 0, 4);
	assert_int_equal(coppice_seq_accept(seq, indices, 2, &ticket), 0);
	await(f, ticket);
	assert_length(seq, 2, 0);
	coppice_seq_close(seq);
}

static void a_failed_step_leaves_the_length_to_trim_to(void **state)
{
	struct fixture *f = *state;
	struct coppice_seq *seq = client_open_seq(f, f->lane, 8);
	struct coppice_step_seq part = client_part_of(f, seq, 4);
	struct coppice_step step = {.layer = 7, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	assert_int_equal(coppice_seq_extend(seq, f->ids, 3, NULL), 0);
	assert_int_equal(step_all(f, seq, 3), 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids + 3, 4, NULL), 0);
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, COPPICE_FOREVER), -EINVAL);
	assert_length(seq, 3, 0);
	assert_int_equal(coppice_seq_trim(seq, 3, NULL), 0);
	assert_int_equal(coppice_seq_extend(seq, f->ids + 3, 4, NULL), 0);
	assert_int_equal(step_all(f, seq, 4), 0);
	assert_length(seq, 7, 0);
	coppice_seq_close(seq);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, client_setup, client_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_sequence_grows_by_what_is_computed),
		TEST(a_draft_counts_once_it_is_accepted),
		TEST(a_failed_step_leaves_the_length_to_trim_to),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s COPPICED\n", argv[0]);
		return 2;
	}
	client_daemon = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
