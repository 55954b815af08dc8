/*
 * api_failure_test.c - what follows from an entry that failed, through the library and against a
 * real daemon: who did not wait for it learns of it from what comes later, with its status, its
 * sentence and its ticket, and knows what clears it. argv[1] is the daemon's program.
 */
#include "api_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define TOO_MANY 20000u /* tokens, for a small pool and a small share */

/* Submits a step of N_NEW tokens; returns its ticket. */
static uint64_t submit_step(struct fixture *f, uint32_t layer, uint32_t offset)
{
	struct coppice_step_seq part = right_part(f);
	struct coppice_step step = {.layer = layer, .seqs = &part, .n_seqs = 1};
	uint64_t ticket;

	part.q = (const char *)part.q + offset;
	assert_int_equal(coppice_step(f->lane, &step, &ticket), 0);
	return ticket;
}

/* Its status is the first one's, its result and its sentence name that. */
static void assert_failed_by(struct fixture *f, uint64_t ticket, int status, uint64_t cause)
{
	struct coppice_result result;
	char name[64];

	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), status);
	assert_int_equal(coppice_poll(f->lane, ticket, &result), 0);
	assert_int_equal(result.status, status);
	assert_int_equal(result.cause, cause);
	assert_int_equal(result.value, 0);
	snprintf(name, sizeof(name), "(ticket %llu) failed first: ", (unsigned long long)cause);
	assert_explained(f->c, name);
}

static void assert_no_room(struct fixture *f, int status, const char *words)
{
	struct counts before;
	uint64_t ticket;

	assert_usable(f);
	before = counts_of(f);
	assert_int_equal(coppice_seq_extend(f->seq, f->ids, TOO_MANY, &ticket), 0);
	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), status);
	assert_explained(f->c, words);
	assert_counts(f, &before);
	assert_usable(f);
}

static void more_than_the_pool_holds_is_refused(void **state)
{
	assert_no_room(*state, -ENOSPC, "the KV pool is full");
}

static void more_than_the_domains_share_is_refused(void **state)
{
	assert_no_room(*state, -EDQUOT, "the domain's share of the KV pool");
}

/* As an app is written that waits for steps alone. */
static void assert_step_tells(struct fixture *f, int status, const char *words)
{
	uint64_t extended, stepped;

	assert_int_equal(coppice_seq_extend(f->seq, f->ids, TOO_MANY, NULL), 0);
	stepped = submit_step(f, 0, 0);
	extended = stepped - 1;
	assert_failed_by(f, stepped, status, extended);
	assert_explained(f->c, words);
	assert_explained(f->c, "extend (ticket ");
	assert_explained(f->c, "; then extend again");
	/* Nothing but that: the sequence is what it was. */
	assert_usable(f);
}

static void a_step_tells_that_the_pool_was_full(void **state)
{
	assert_step_tells(*state, -ENOSPC, "failed first: the KV pool is full");
}

static void a_step_tells_that_the_share_was_used_up(void **state)
{
	assert_step_tells(*state, -EDQUOT, "failed first: the domain's share of the KV pool");
}

static void what_comes_behind_a_failed_step_tells_of_it_until_a_trim(void **state)
{
	struct fixture *f = *state;
	uint64_t first, later, extended;

	assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, NULL), 0);
	first = submit_step(f, 0, 1);
	later = submit_step(f, 1, 0);
	assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, &extended), 0);
	assert_failed_by(f, later, -EINVAL, first);
	assert_explained(f->c, "step of layer 1 (ticket ");
	assert_explained(f->c, "sequence 0: step of layer 0 (ticket ");
	assert_explained(f->c, "is not aligned");
	assert_explained(f->c, "; call coppice_seq_trim, then extend again");
	assert_failed_by(f, extended, -EINVAL, first);
	fixture_trim(f);
	assert_usable(f);
}

/* Of two sequences in a step, it is the one that has no extension that is named. */
static void the_sequence_that_failed_is_named(void **state)
{
	struct fixture *f = *state;
	struct coppice_step_seq parts[2] = {right_part(f), right_part(f)};
	struct coppice_step step = {.seqs = parts, .n_seqs = 2};
	struct coppice_match match;
	struct coppice_seq *other;
	uint64_t extended, stepped;

	assert_int_equal(coppice_seq_open(f->lane, f->model, f->ids, 1, 7, &other, &match), 0);
	parts[0].seq = other;
	assert_int_equal(coppice_seq_extend(other, f->ids, N_NEW, NULL), 0);
	assert_int_equal(coppice_seq_extend(f->seq, f->ids, TOO_MANY, &extended), 0);
	assert_int_equal(coppice_step(f->lane, &step, &stepped), 0);
	assert_failed_by(f, stepped, -ENOSPC, extended);
	assert_explained(f->c, "sequence 1: extend");
	coppice_seq_close(other);
	assert_usable(f);
}

static void a_ticket_is_explained_whenever_it_is_asked_about(void **state)
{
	struct fixture *f = *state;
	uint64_t good, bad, last;

	assert_int_equal(coppice_seq_extend(f->seq, f->ids, N_NEW, &good), 0);
	bad = submit_step(f, 0, 1);
	assert_int_equal(coppice_nop(f->lane, &last), 0);
	assert_int_equal(coppice_wait(f->lane, last, PATIENCE_NS), 0);
	assert_non_null(strstr(coppice_explain_ticket(f->lane, bad), "is not aligned"));
	assert_non_null(strstr(coppice_explain_ticket(f->lane, good), "has not failed"));
	assert_non_null(strstr(coppice_explain_ticket(f->lane, last + 1), "was not submitted"));
	for (int i = 0; i < 256; i++) {
		assert_int_equal(coppice_nop(f->lane, &last), 0);
		assert_int_equal(coppice_wait(f->lane, last, PATIENCE_NS), 0);
	}
	assert_non_null(strstr(coppice_explain_ticket(f->lane, bad), "its result is gone"));
	fixture_trim(f);
	assert_usable(f);
}

/* The stop signal holds the daemon: nothing completes. */
static void a_ticket_in_flight_is_said_to_be(void **state)
{
	struct fixture *f = *state;
	uint64_t ticket;

	kill(f->h->pid, SIGSTOP);
	waitpid(f->h->pid, NULL, WUNTRACED);
	assert_int_equal(coppice_nop(f->lane, &ticket), 0);
	assert_non_null(strstr(coppice_explain_ticket(f->lane, ticket), "is still in flight"));
	kill(f->h->pid, SIGCONT);
	assert_int_equal(coppice_wait(f->lane, ticket, PATIENCE_NS), 0);
}

#define TEST_WITH(name, with) cmocka_unit_test_setup_teardown(name, with, fixture_teardown)
#define TEST(name) TEST_WITH(name, fixture_setup)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST_WITH(more_than_the_pool_holds_is_refused, fixture_setup_small_pool),
		TEST_WITH(more_than_the_domains_share_is_refused, fixture_setup_small_share),
		TEST_WITH(a_step_tells_that_the_pool_was_full, fixture_setup_small_pool),
		TEST_WITH(a_step_tells_that_the_share_was_used_up, fixture_setup_small_share),
		TEST(what_comes_behind_a_failed_step_tells_of_it_until_a_trim),
		TEST_WITH(the_sequence_that_failed_is_named, fixture_setup_small_pool),
		TEST(a_ticket_is_explained_whenever_it_is_asked_about),
		TEST(a_ticket_in_flight_is_said_to_be),
	};

	if (harness_init(argc, argv) < 0)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
