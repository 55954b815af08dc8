/* prompts_test.c - memory for what is not computed of prompts: who is charged, until when, and what
 * is refused. */
#include "store_fixture.h"

#include "kvstore/tree/core.h"

#include <errno.h>

#define ID sizeof(uint32_t)

static int try_open(struct fixture *f, uint64_t domain, const char *prompt, struct store_seq **ret)
{
	uint32_t ids[64];
	struct store_match match;
	struct store_open open = {.model = f->model,
				  .domain = domain,
				  .tokens = ids,
				  .n_tokens = fixture_ids(prompt, ids)};
	int r = store_seq_open(f->store, &open, f->now_ns, ret, &match);

	fixture_check(f);
	return r;
}

static void test_a_prompt_is_charged_until_it_is_computed(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "abcdefgh", NULL);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_publish(&f, q, "abc");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_publish(&f, q, "defgh");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_what_is_cached_is_not_charged(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcd");
	struct store_seq *q = fixture_open(&f, "abcdef", NULL);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 2 * ID);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_prompt_that_is_left_or_closed_is_not_charged(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *left = fixture_open(&f, "abcdefgh", NULL);
	struct store_seq *trimmed = fixture_open(&f, "ABCDEFGH", NULL);
	struct store_seq *closed = fixture_open(&f, "12345678", NULL);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 24 * ID);
	fixture_publish(&f, left, "abX");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 16 * ID);
	fixture_publish(&f, trimmed, "ABC");
	assert_int_equal(store_seq_trim(trimmed, 2, f.now_ns), 0);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_close(&f, closed);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 0);
	fixture_close(&f, left);
	fixture_close(&f, trimmed);
	fixture_done(&f);
}

/* *ret_left: what is to be freed yet. */
static struct store_seq *give(struct fixture *f, const char *prompt, uint32_t **ret_left)
{
	uint32_t *ids = malloc(64 * sizeof(*ids));
	struct store_match match;
	struct store_open open = {.model = f->model,
				  .domain = 1,
				  .tokens = ids,
				  .n_tokens = fixture_ids(prompt, ids),
				  .give = ret_left};
	struct store_seq *q;

	assert_non_null(ids);
	*ret_left = ids;
	assert_int_equal(store_seq_open(f->store, &open, f->now_ns, &q, &match), 0);
	fixture_check(f);
	return q;
}

/* Whose place is behind those of a page of another. */
static void leave_page(struct fixture *f)
{
	uint32_t *left;
	struct store_seq *q = give(f, "abcd", &left);

	assert_null(left);
	fixture_publish(f, q, "abcd");
	fixture_close(f, q);
}

static void test_a_prompt_that_is_given_is_not_copied(void **state)
{
	struct fixture f;
	uint32_t *left;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	leave_page(&f);
	struct store_seq *q = give(&f, "abcdefgh", &left);
	assert_null(left);
	assert_int_equal(q->n_path, 4);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_publish(&f, q, "efg");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_publish(&f, q, "h");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_of_one_that_is_cached_for_the_most_part_the_rest_is_copied(void **state)
{
	struct fixture f;
	uint32_t *left;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	leave_page(&f);
	struct store_seq *q = give(&f, "abcdefg", &left);
	assert_non_null(left);
	free(left);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 3 * ID);
	fixture_publish(&f, q, "efg");
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_one_that_is_refused_is_not_kept(void **state)
{
	struct fixture f;
	uint32_t ids[64], *given = ids;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_prompt_bytes = 7 * ID});
	struct store_open open = {.model = f.model,
				  .domain = 1,
				  .tokens = ids,
				  .n_tokens = fixture_ids("abcdefgh", ids),
				  .give = &given};
	struct store_seq *q;
	assert_int_equal(store_seq_open(f.store, &open, f.now_ns, &q, &match), -EDQUOT);
	assert_ptr_equal(given, ids);
	fixture_done(&f);
}

/* Each is charged for it, and the last frees it. */
static void test_forks_share_a_prompt(void **state)
{
	struct fixture f;
	uint32_t *left;
	struct store_seq *fork, *late;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = give(&f, "abcdefgh", &left);
	assert_int_equal(store_seq_fork(q, f.now_ns, &fork), 0);
	assert_ptr_equal(fork->prompt, q->prompt);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 16 * ID);
	fixture_publish(&f, q, "abcde");
	assert_int_equal(store_seq_fork(q, f.now_ns, &late), 0);
	assert_ptr_not_equal(late->prompt, q->prompt);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 19 * ID);
	fixture_close(&f, q);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 11 * ID);
	fixture_publish(&f, late, "fgh");
	fixture_publish(&f, fork, "abcdefg");
	assert_int_equal(fixture_stats(&f).prompt_bytes, 8 * ID);
	fixture_close(&f, fork);
	fixture_close(&f, late);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 0);
	fixture_done(&f);
}

static void test_a_domain_has_a_share(void **state)
{
	struct fixture f;
	struct store_seq *a, *b, *c, *refused = NULL;
	(void)state;

	fixture_init(&f, (struct fixture_options){.domain_prompt_bytes = 8 * ID});
	assert_int_equal(try_open(&f, 1, "abcde", &a), 0);
	assert_int_equal(try_open(&f, 1, "ABCD", &refused), -EDQUOT);
	assert_int_equal(try_open(&f, 1, "123456789", &refused), -EDQUOT);
	assert_int_equal(try_open(&f, 1, "ABC", &b), 0);
	assert_int_equal(store_seq_fork(b, f.now_ns, &refused), -EDQUOT);
	assert_int_equal(try_open(&f, 2, "abcdefgh", &c), 0);
	assert_null(refused);
	assert_int_equal(fixture_stats(&f).n_seqs, 3);
	fixture_close(&f, a);
	assert_int_equal(store_seq_fork(b, f.now_ns, &a), 0);
	assert_int_equal(fixture_stats(&f).prompt_bytes, 14 * ID);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_close(&f, c);
	fixture_done(&f);
}

static void test_all_have_so_much_together(void **state)
{
	struct fixture f;
	struct store_seq *a, *b, *refused = NULL;
	(void)state;

	fixture_init(&f, (struct fixture_options){.prompt_bytes = 8 * ID});
	assert_int_equal(try_open(&f, 1, "abcde", &a), 0);
	assert_int_equal(try_open(&f, 2, "abcd", &refused), -ENOBUFS);
	assert_int_equal(store_seq_fork(a, f.now_ns, &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 2, "abc", &b), 0);
	assert_null(refused);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

/* Ten of twenty are one domain's, and two the last tenth. */
static void test_whoever_comes_finds_half_of_what_the_one_before_found(void **state)
{
	struct fixture f;
	struct store_seq *a, *b, *c, *d, *refused = NULL;
	(void)state;

	fixture_init(&f, (struct fixture_options){.prompt_bytes = 20 * ID,
						  .domain_prompt_bytes = 10 * ID,
						  .owner = 9});
	assert_int_equal(try_open(&f, 1, "abcdefghij", &a), 0);
	assert_int_equal(try_open(&f, 2, "abcdefghi", &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 2, "abcdefgh", &b), 0);
	assert_int_equal(try_open(&f, 2, "A", &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 3, "ab", &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 3, "a", &c), 0);
	assert_int_equal(try_open(&f, 3, "b", &refused), -ENOBUFS);
	assert_int_equal(store_seq_fork(c, f.now_ns, &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 9, "ab", &refused), -ENOBUFS);
	assert_int_equal(try_open(&f, 9, "a", &d), 0);
	assert_null(refused);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_close(&f, c);
	fixture_close(&f, d);
	fixture_done(&f);
}

static uint32_t many(uint32_t *ids)
{
	for (uint32_t i = 0; i < 400; i++)
		ids[i] = i + 1;
	return 400;
}

/* Else a session would have as much memory by sequences that once had a long extension. */
static void test_room_for_a_long_extension_is_not_kept(void **state)
{
	struct fixture f;
	uint32_t ids[400], n = many(ids);
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "ab", NULL);
	assert_int_equal(store_seq_extend(q, ids, n, true, f.now_ns), 0);
	store_seq_void(q, f.now_ns);
	assert_int_equal(q->ids_capacity, 0);
	assert_int_equal(store_seq_extend(q, ids, n, false, f.now_ns), 0);
	assert_int_equal(store_seq_publish(q, f.now_ns), 0);
	assert_int_equal(q->ids_capacity, 0);
	assert_int_equal(fixture_extend(&f, q, "cd", false), 0);
	store_seq_void(q, f.now_ns);
	assert_in_range(q->ids_capacity, 2, (1u << BLOCKS_MIN_SHIFT) / sizeof(*q->ids));
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_nor_is_it_of_one_that_has_no_room(void **state)
{
	struct fixture f;
	uint32_t ids[400], n = many(ids);
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 1});
	struct store_seq *q = fixture_open(&f, "ab", NULL);
	assert_int_equal(store_seq_extend(q, ids, n, false, f.now_ns), -ENOSPC);
	assert_int_equal(q->ids_capacity, 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_prompt_is_charged_until_it_is_computed),
		cmocka_unit_test(test_what_is_cached_is_not_charged),
		cmocka_unit_test(test_a_prompt_that_is_left_or_closed_is_not_charged),
		cmocka_unit_test(test_a_prompt_that_is_given_is_not_copied),
		cmocka_unit_test(test_of_one_that_is_cached_for_the_most_part_the_rest_is_copied),
		cmocka_unit_test(test_one_that_is_refused_is_not_kept),
		cmocka_unit_test(test_forks_share_a_prompt),
		cmocka_unit_test(test_a_domain_has_a_share),
		cmocka_unit_test(test_all_have_so_much_together),
		cmocka_unit_test(test_whoever_comes_finds_half_of_what_the_one_before_found),
		cmocka_unit_test(test_room_for_a_long_extension_is_not_kept),
		cmocka_unit_test(test_nor_is_it_of_one_that_has_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
