/* claims_test.c - single flight: who computes, who waits, who takes over. */
#include "store_fixture.h"

#include <string.h>

static struct store_match rematch(struct fixture *f, struct store_seq *q)
{
	struct store_match match;

	assert_int_equal(store_seq_rematch(q, f->now_ns, &match), 0);
	fixture_check(f);
	return match;
}

static void assert_match(struct store_match match, uint32_t cached, uint32_t pending, bool claimed)
{
	assert_int_equal(match.cached, cached);
	assert_int_equal(match.pending, pending);
	assert_int_equal(match.claimed, claimed);
}

static void test_the_first_claims_and_the_second_waits(void **state)
{
	struct fixture f;
	struct store_match a_match, b_match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "document 1", &a_match);
	struct store_seq *b = fixture_open(&f, "document 2", &b_match);
	assert_match(a_match, 0, 0, true);
	assert_match(b_match, 0, 9, false);
	assert_int_equal(fixture_stats(&f).n_claims, 1);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_pending_stops_before_the_last_prompt_token(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "document", NULL);
	struct store_seq *b = fixture_open(&f, "document", &match);
	assert_match(match, 0, 7, false);
	struct store_seq *c = fixture_open(&f, "documents", &match);
	assert_match(match, 0, 8, false);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_close(&f, c);
	fixture_done(&f);
}

static void test_other_first_tokens_are_other_claims(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abc", NULL);
	struct store_seq *b = fixture_open(&f, "xyz", &match);
	assert_match(match, 0, 0, true);
	assert_int_equal(fixture_stats(&f).n_claims, 2);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_a_waiter_follows_chunk_by_chunk(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefghij", NULL);
	struct store_seq *b = fixture_open(&f, "abcdefgh##", NULL);
	uint64_t epoch = store_epoch(f.store);
	fixture_publish(&f, a, "abc");
	assert_true(store_epoch(f.store) > epoch);
	assert_match(rematch(&f, b), 3, 5, false);
	fixture_publish(&f, a, "def");
	assert_match(rematch(&f, b), 6, 2, false);
	fixture_publish(&f, a, "ghij");
	assert_int_equal(fixture_stats(&f).n_claims, 0);
	assert_match(rematch(&f, b), 8, 0, true);
	fixture_publish(&f, b, "##");
	assert_match(rematch(&f, b), 10, 0, false);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_the_next_takes_over_when_the_claimant_closes(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	struct store_seq *b = fixture_open(&f, "abcdefgh", NULL);
	struct store_seq *c = fixture_open(&f, "abcdefgh", NULL);
	fixture_publish(&f, a, "abc");
	uint64_t epoch = store_epoch(f.store);
	fixture_close(&f, a);
	assert_true(store_epoch(f.store) > epoch);
	assert_match(rematch(&f, b), 3, 0, true);
	assert_match(rematch(&f, c), 3, 4, false);
	fixture_close(&f, b);
	fixture_close(&f, c);
	fixture_done(&f);
}

static void test_a_lease_without_progress_lapses(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	struct store_seq *b = fixture_open(&f, "abcdefgh", NULL);
	f.now_ns = FIXTURE_CLAIM_NS - 1;
	assert_int_equal(store_tick(f.store, f.now_ns), FIXTURE_CLAIM_NS);
	assert_match(rematch(&f, b), 0, 7, false);
	f.now_ns = FIXTURE_CLAIM_NS;
	uint64_t epoch = store_epoch(f.store);
	assert_true(store_tick(f.store, f.now_ns) == UINT64_MAX);
	assert_true(store_epoch(f.store) > epoch);
	assert_match(rematch(&f, b), 0, 0, true);
	assert_match(rematch(&f, a), 0, 7, false);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_progress_and_publication_renew_the_lease(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	f.now_ns = 600;
	store_seq_progress(a, f.now_ns);
	assert_int_equal(store_tick(f.store, f.now_ns), 600 + FIXTURE_CLAIM_NS);
	f.now_ns = 1200;
	fixture_publish(&f, a, "abc");
	assert_int_equal(store_tick(f.store, f.now_ns), 1200 + FIXTURE_CLAIM_NS);
	fixture_close(&f, a);
	fixture_done(&f);
}

static void test_the_late_claimant_still_publishes(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	struct store_seq *b = fixture_open(&f, "abcdefgh", NULL);
	assert_int_equal(fixture_extend(&f, a, "abcdefgh", false), 0);
	f.now_ns = 5000;
	assert_match(rematch(&f, b), 0, 0, true);
	assert_int_equal(fixture_extend(&f, b, "abcdefgh", false), 0);
	assert_int_equal(store_seq_publish(a, f.now_ns), 0);
	assert_int_equal(store_seq_publish(b, f.now_ns), 0);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).tokens_published, 8);
	assert_int_equal(fixture_stats(&f).tokens_dropped, 8);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_trim_and_other_tokens_end_a_claim(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	assert_int_equal(store_seq_trim(a, 0, f.now_ns), 0);
	assert_int_equal(fixture_stats(&f).n_claims, 0);
	assert_match(rematch(&f, a), 0, 0, true);
	assert_int_equal(fixture_extend(&f, a, "abX", false), 0);
	assert_int_equal(fixture_stats(&f).n_claims, 0);
	assert_int_equal(store_seq_publish(a, f.now_ns), 0);
	assert_match(rematch(&f, a), 3, 0, false);
	fixture_close(&f, a);
	fixture_done(&f);
}

static void test_a_claim_ends_where_another_stands(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdefgh", NULL);
	/* Somebody who does not wait gets ahead of the claimant, and a third claims from there. */
	fixture_leave(&f, "abcd");
	struct store_seq *c = fixture_open(&f, "abcdefgh", &match);
	assert_match(match, 4, 0, true);
	fixture_publish(&f, a, "abcd");
	assert_int_equal(fixture_stats(&f).n_claims, 1);
	assert_match(rematch(&f, a), 4, 3, false);
	assert_match(rematch(&f, c), 4, 0, true);
	fixture_close(&f, a);
	fixture_close(&f, c);
	fixture_done(&f);
}

static void test_a_claim_inside_a_node_survives_its_split(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcdefgh");
	struct store_seq *a = fixture_open(&f, "abcde12", &match);
	assert_match(match, 5, 0, true);
	struct store_seq *b = fixture_compute(&f, "abcdef99");
	struct store_seq *c = fixture_open(&f, "abcde1x", &match);
	assert_match(match, 5, 1, false);
	fixture_publish(&f, a, "12");
	assert_match(rematch(&f, c), 6, 0, true);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_close(&f, c);
	fixture_done(&f);
}

static void test_eight_openers_compute_once(void **state)
{
	struct fixture f;
	struct store_seq *seqs[8];
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	for (int i = 0; i < 8; i++) {
		char prompt[32] = "a long document, question ?";
		*strchr(prompt, '?') = (char)('1' + i);
		seqs[i] = fixture_open(&f, prompt, &match);
		assert_match(match, 0, i ? 26 : 0, i == 0);
	}
	fixture_publish(&f, seqs[0], "a long document, question 1");
	for (int i = 1; i < 8; i++)
		assert_match(rematch(&f, seqs[i]), 26, 0, true);
	assert_int_equal(fixture_stats(&f).tokens_published, 27);
	for (int i = 0; i < 8; i++)
		fixture_close(&f, seqs[i]);
	fixture_done(&f);
}

static void test_a_fork_waits_for_its_original(void **state)
{
	struct fixture f;
	struct store_seq *fork;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcd", NULL);
	assert_int_equal(store_seq_fork(a, f.now_ns, &fork), 0);
	assert_match(rematch(&f, fork), 0, 3, false);
	fixture_close(&f, a);
	assert_match(rematch(&f, fork), 0, 0, true);
	fixture_close(&f, fork);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_claims_and_the_second_waits),
		cmocka_unit_test(test_pending_stops_before_the_last_prompt_token),
		cmocka_unit_test(test_other_first_tokens_are_other_claims),
		cmocka_unit_test(test_a_waiter_follows_chunk_by_chunk),
		cmocka_unit_test(test_the_next_takes_over_when_the_claimant_closes),
		cmocka_unit_test(test_a_lease_without_progress_lapses),
		cmocka_unit_test(test_progress_and_publication_renew_the_lease),
		cmocka_unit_test(test_the_late_claimant_still_publishes),
		cmocka_unit_test(test_trim_and_other_tokens_end_a_claim),
		cmocka_unit_test(test_a_claim_ends_where_another_stands),
		cmocka_unit_test(test_a_claim_inside_a_node_survives_its_split),
		cmocka_unit_test(test_eight_openers_compute_once),
		cmocka_unit_test(test_a_fork_waits_for_its_original),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
