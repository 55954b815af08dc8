/*
 * store_test.c - sequences: bad arguments, drafts and their moves, trim, fork, failed allocations.
 *
 * malloc and its kin are wrapped by the linker, so that every allocation of a call can fail in
 * turn.
 */
#include "store_fixture.h"

#include <errno.h>
#include <string.h>

static int n_until_failure = -1; /* allocations that still succeed; -1: all */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static bool fails(void)
{
	return n_until_failure >= 0 && n_until_failure-- == 0;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return fails() ? NULL : __real_realloc(p, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

static void test_bad_arguments_change_nothing(void **state)
{
	struct fixture f;
	struct store_seq *q, *none = NULL;
	struct store_match match;
	struct store_move room[4];
	struct store_moves moves = {.moves = room};
	uint32_t ids[4] = {1, 2, 3, 4};
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_open open = {.model = f.model, .tokens = ids, .n_tokens = 0};
	assert_int_equal(store_seq_open(f.store, &open, 0, &none, &match), -EINVAL);
	open.n_tokens = 100001;
	assert_int_equal(store_seq_open(f.store, &open, 0, &none, &match), -EINVAL);
	assert_null(none);
	q = fixture_open(&f, "abcd", NULL);
	assert_int_equal(store_seq_publish(q, 0), -EINVAL);
	assert_int_equal(store_seq_accept(q, ids, 1, 0, &moves), -EINVAL);
	assert_int_equal(store_seq_extend(q, ids, 0, false, 0), -EINVAL);
	assert_int_equal(store_seq_extend(q, ids, 100001, false, 0), -EINVAL);
	assert_int_equal(store_seq_trim(q, 1, 0), -EINVAL);
	fixture_check(&f);
	fixture_close(&f, q);
	fixture_close(&f, NULL);
	fixture_done(&f);
}

static void test_models_of_one_name_and_other_fingerprints_differ(void **state)
{
	struct fixture f;
	struct store_model *same, *other;
	struct store_model_info info = {.name = "m",
					.fingerprint = {1, 2},
					.page_tokens = 4,
					.page_bytes = 100};
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	assert_int_equal(store_model_open(f.store, &info, &same), 0);
	assert_ptr_equal(same, f.model);
	info.fingerprint[1] = 3;
	assert_int_equal(store_model_open(f.store, &info, &other), 0);
	assert_ptr_not_equal(other, f.model);
	store_model_unref(same);
	store_model_unref(other);
	info.page_tokens = 0;
	assert_int_equal(store_model_open(f.store, &info, &other), -EINVAL);
	info = (struct store_model_info){.name = "m",
					 .fingerprint = {1, 2},
					 .page_tokens = 8,
					 .page_bytes = 100};
	assert_int_equal(store_model_open(f.store, &info, &other), -EINVAL);
	assert_int_equal(fixture_stats(&f).n_models, 1);
	fixture_done(&f);
}

static void test_one_extension_at_a_time(void **state)
{
	struct fixture f;
	struct store_seq *fork;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "abcd", NULL);
	assert_int_equal(fixture_extend(&f, q, "abc", false), 0);
	assert_int_equal(store_seq_n_live(q), 3);
	assert_int_equal(store_seq_n_tokens(q), 0);
	assert_int_equal(fixture_extend(&f, q, "d", false), -EBUSY);
	assert_int_equal(store_seq_rematch(q, 0, &match), -EBUSY);
	assert_int_equal(store_seq_fork(q, 0, &fork), -EBUSY);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_slots_cover_the_extension(void **state)
{
	struct fixture f;
	uint32_t n;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "0123456", false), 0);
	const struct store_slice *slots = store_seq_slots(q, &n);
	assert_int_equal(n, 3);
	assert_int_equal(slots[0].first, 2);
	assert_int_equal(slots[0].count, 2);
	assert_int_equal(slots[1].first, 0);
	assert_int_equal(slots[1].count, 4);
	assert_int_equal(slots[2].count, 1);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_draft_is_accepted_with_moves(void **state)
{
	struct fixture f;
	struct store_move room[4];
	struct store_moves moves = {.moves = room};
	uint32_t n, page, row;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "uvwxyz", true), 0);
	assert_int_equal(store_seq_publish(q, 0), -EINVAL);
	const struct store_slice *slots = store_seq_slots(q, &n);
	uint32_t first = slots[0].page, second = slots[1].page;
	assert_int_equal(store_seq_accept(q, (uint32_t[]){0, 3, 4}, 3, 0, &moves), 0);
	fixture_check(&f);
	assert_int_equal(moves.n, 2);
	struct store_move want[2] = {{second, 1, first, 3}, {second, 2, second, 0}};
	assert_memory_equal(room, want, sizeof(want));
	assert_int_equal(store_seq_n_tokens(q), 5);
	fixture_row(q, 4, &page, &row);
	assert_int_equal(page, second);
	assert_int_equal(row, 0);
	assert_int_equal(fixture_cached(&f, "abuxy#"), 5);
	/* The rows of the rejected ones are handed out again. */
	assert_int_equal(fixture_extend(&f, q, "1", false), 0);
	slots = store_seq_slots(q, &n);
	assert_int_equal(slots[0].page, second);
	assert_int_equal(slots[0].first, 1);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_rejected_draft_leaves_nothing(void **state)
{
	struct store_moves moves = {0};
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "uvwxyz", true), 0);
	assert_int_equal(store_seq_accept(q, NULL, 0, 0, &moves), 0);
	fixture_check(&f);
	assert_int_equal(moves.n, 0);
	assert_int_equal(store_seq_n_tokens(q), 2);
	assert_int_equal(fixture_stats(&f).n_pages, 1);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_bad_indices_are_refused(void **state)
{
	static const uint32_t bad[][2] = {{1, 1}, {2, 1}, {0, 3}, {3, 4}};
	struct fixture f;
	struct store_move room[4];
	struct store_moves moves = {.moves = room};
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "uvw", true), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(store_seq_accept(q, bad[i], 2, 0, &moves), -EINVAL);
	assert_int_equal(store_seq_accept(q, (uint32_t[]){0, 1, 2, 3}, 4, 0, &moves), -EINVAL);
	assert_int_equal(store_seq_n_live(q), 3);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_accepted_tokens_that_are_known_need_no_move(void **state)
{
	struct fixture f;
	struct store_move room[4];
	struct store_moves moves = {.moves = room};
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abux");
	struct store_seq *q = fixture_compute(&f, "ab");
	assert_int_equal(fixture_extend(&f, q, "uvwxyz", true), 0);
	assert_int_equal(store_seq_accept(q, (uint32_t[]){0, 3, 4}, 3, 0, &moves), 0);
	fixture_check(&f);
	assert_int_equal(moves.n, 1);
	assert_int_equal(room[0].to_row, 0);
	assert_int_equal(fixture_cached(&f, "abuxy#"), 5);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_rows_to_be_moved_keep_their_memory_until_the_next_call(void **state)
{
	struct fixture f;
	struct store_move room[16];
	struct store_moves moves = {.moves = room};
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 1});
	struct store_seq *q = fixture_compute(&f, "abcd");
	assert_int_equal(fixture_extend(&f, q, "opqrstuvwxyz", true), 0);
	assert_int_equal(f.n_committed, 4);
	assert_int_equal(store_seq_accept(q, (uint32_t[]){11}, 1, 0, &moves), 0);
	assert_int_equal(moves.n, 1);
	assert_true(f.committed[room[0].from_page]);
	assert_int_equal(f.n_committed, 4);
	store_tick(f.store, 0);
	fixture_check(&f);
	/* Of the two that are empty one stays. */
	assert_int_equal(f.n_committed, 3);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_trim_goes_back_and_leaves_the_tree(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcdef");
	struct store_seq *q = fixture_compute(&f, "abcd1234");
	assert_int_equal(fixture_extend(&f, q, "xx", false), 0);
	assert_int_equal(store_seq_trim(q, 8, 0), 0);
	assert_int_equal(store_seq_n_live(q), 0);
	for (uint32_t n = 8; n-- > 0;) {
		assert_int_equal(store_seq_trim(q, n, 0), 0);
		fixture_check(&f);
		assert_int_equal(store_seq_n_tokens(q), n);
	}
	assert_int_equal(fixture_cached(&f, "abcd1234#"), 8);
	fixture_publish(&f, q, "ab");
	assert_int_equal(fixture_stats(&f).tokens_dropped, 2);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_forks_share_the_path_and_part_after_it(void **state)
{
	struct fixture f;
	struct store_seq *forks[4];
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "abcdef");
	for (int i = 0; i < 4; i++) {
		assert_int_equal(store_seq_fork(q, 0, &forks[i]), 0);
		fixture_check(&f);
		assert_int_equal(store_seq_n_tokens(forks[i]), 6);
	}
	for (int i = 0; i < 4; i++)
		fixture_publish(&f, forks[i], (char[]){(char)('0' + i), 0});
	assert_int_equal(fixture_stats(&f).n_nodes, 5);
	fixture_close(&f, q);
	for (int i = 0; i < 4; i++)
		fixture_close(&f, forks[i]);
	fixture_done(&f);
}

static void test_scratch_words_are_kept_and_new_nodes_have_none(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_compute(&f, "abcdef");
	*store_node_scratch(store_seq_node(q)) = 42;
	fixture_leave(&f, "abc#");
	assert_int_equal(*store_node_scratch(store_seq_node(q)), 42);
	assert_int_equal(*store_node_scratch(store_node_parent(store_seq_node(q))), 0);
	fixture_close(&f, q);
	fixture_done(&f);
}

/* What must be the same before and after a call that failed: all but an empty extent that stays
 * with its model. */
static void assert_stats_equal(const struct fixture *f, const struct store_stats *before)
{
	struct store_stats after = fixture_stats(f);

	assert_true(after.n_extents_used - before->n_extents_used <= 1);
	after.n_extents_used = before->n_extents_used;
	assert_memory_equal(&after, before, sizeof(after));
}

/* Fails the first allocation of the call, then the second, ... until the call succeeds. */
#define WITH_FAILURES(f, call) \
	for (int n_good = 0, result = -ENOMEM; result; n_good++) { \
		struct store_stats before = fixture_stats(f); \
		n_until_failure = n_good; \
		result = (call); \
		n_until_failure = -1; \
		fixture_check(f); \
		assert_true(n_good < 50); \
		if (!result) \
			break; \
		assert_int_equal(result, -ENOMEM); \
		assert_stats_equal(f, &before); \
	}

static void test_allocations_that_fail_change_nothing(void **state)
{
	struct fixture f;
	struct store_seq *q = NULL, *fork = NULL;
	struct store_match match;
	struct store_move room[8];
	struct store_moves moves = {.moves = room};
	uint32_t ids[16];
	uint64_t pin;
	(void)state;

	fixture_init(&f, (struct fixture_options){.extent_pages = 2});
	struct store_open open = {.model = f.model, .domain = 5, .salt = 3, .tokens = ids};
	open.n_tokens = fixture_ids("abcdefghij", ids);
	WITH_FAILURES(&f, store_seq_open(f.store, &open, 0, &q, &match));
	WITH_FAILURES(&f, store_seq_extend(q, ids, 10, false, 0));
	WITH_FAILURES(&f, store_seq_publish(q, 0));
	WITH_FAILURES(&f, store_seq_fork(q, 0, &fork));
	assert_int_equal(store_seq_trim(fork, 5, 0), 0);
	fixture_ids("1234567", ids);
	WITH_FAILURES(&f, store_seq_extend(fork, ids, 7, true, 0));
	assert_int_equal(fixture_stats(&f).nodes_split, 1);
	WITH_FAILURES(&f, store_seq_accept(fork, (uint32_t[]){1, 4}, 2, 0, &moves));
	WITH_FAILURES(&f, store_seq_pin(fork, 10, &pin));
	fixture_close(&f, fork);
	assert_int_equal(store_seq_trim(q, 8, 0), 0);
	WITH_FAILURES(&f, store_seq_extend(q, ids, 3, false, 0));
	store_seq_close(q, 0);
	fixture_done(&f);
}

/* The part that is adopted ends inside a node, which publication has to split. */
static void test_a_publication_that_splits_fails_whole(void **state)
{
	struct fixture f;
	uint32_t ids[8];
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *q = fixture_open(&f, "abcdXY", NULL);
	uint32_t n = fixture_ids("abcdXY", ids);
	assert_int_equal(store_seq_extend(q, ids, n, false, 0), 0);
	fixture_leave(&f, "abcdefg");
	WITH_FAILURES(&f, store_seq_publish(q, 0));
	assert_int_equal(fixture_stats(&f).nodes_split, 1);
	assert_int_equal(fixture_cached(&f, "abcdXY#"), 6);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_a_store_that_cannot_be_made_is_none(void **state)
{
	struct fixture f = {0};
	struct store_config config = {
		.pool = {.ctx = &f, .commit = fixture_commit, .release = fixture_release},
		.n_extents = 4,
		.extent_bytes = 100,
		.max_seq_tokens = 10,
	};
	int r = -ENOMEM;
	(void)state;

	for (int i = 0; r; i++) {
		n_until_failure = i;
		r = store_new(&config, &f.store);
		n_until_failure = -1;
		assert_true(r == 0 || r == -ENOMEM);
	}
	store_free(f.store);
	store_free(NULL);
	config.n_extents = 0;
	assert_int_equal(store_new(&config, &f.store), -EINVAL);
}

/* Under ASan nothing of it is left. */
static void test_a_store_goes_with_models_that_are_open(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_model(&f, "other", 4, 200);
	fixture_leave(&f, "abcdefgh");
	assert_int_equal(fixture_stats(&f).n_models, 2);
	fixture_check(&f);
	store_free(f.store);
	assert_int_equal(f.n_committed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_arguments_change_nothing),
		cmocka_unit_test(test_models_of_one_name_and_other_fingerprints_differ),
		cmocka_unit_test(test_one_extension_at_a_time),
		cmocka_unit_test(test_slots_cover_the_extension),
		cmocka_unit_test(test_a_draft_is_accepted_with_moves),
		cmocka_unit_test(test_a_rejected_draft_leaves_nothing),
		cmocka_unit_test(test_bad_indices_are_refused),
		cmocka_unit_test(test_accepted_tokens_that_are_known_need_no_move),
		cmocka_unit_test(test_rows_to_be_moved_keep_their_memory_until_the_next_call),
		cmocka_unit_test(test_trim_goes_back_and_leaves_the_tree),
		cmocka_unit_test(test_forks_share_the_path_and_part_after_it),
		cmocka_unit_test(test_scratch_words_are_kept_and_new_nodes_have_none),
		cmocka_unit_test(test_allocations_that_fail_change_nothing),
		cmocka_unit_test(test_a_publication_that_splits_fails_whole),
		cmocka_unit_test(test_a_store_that_cannot_be_made_is_none),
		cmocka_unit_test(test_a_store_goes_with_models_that_are_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
