/* radix_test.c - token-exact matching, splits at every offset, lengthening, adoption, walks. */
#include "store_fixture.h"
#include "store_inside.h"

#include <string.h>

#define TEXT "abcdefghijklm"

static void test_a_match_is_exact_at_any_token(void **state)
{
	struct fixture f;
	char prompt[] = TEXT "n";
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, TEXT);
	for (size_t i = 0; i < strlen(TEXT); i++) {
		char kept = prompt[i];
		prompt[i] = '#';
		assert_int_equal(fixture_cached(&f, prompt), i);
		prompt[i] = kept;
	}
	assert_int_equal(fixture_cached(&f, prompt), strlen(TEXT));
	fixture_done(&f);
}

static void test_the_last_token_of_a_prompt_is_never_cached(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, TEXT);
	assert_int_equal(fixture_cached(&f, TEXT), strlen(TEXT) - 1);
	assert_int_equal(fixture_cached(&f, "a"), 0);
	fixture_done(&f);
}

static void test_long_runs_match_across_compare_blocks(void **state)
{
	static const uint32_t cuts[] = {1, 2047, 2048, 2049, 4095, 4096, 4097, 9998, 9999};
	static uint32_t ids[10000];
	struct fixture f;
	struct store_match match;
	struct store_seq *q;
	(void)state;

	fixture_init(&f, (struct fixture_options){.page_tokens = 64, .extent_pages = 128});
	for (uint32_t i = 0; i < 10000; i++)
		ids[i] = i * 2654435761u;
	struct store_open open = {.model = f.model, .tokens = ids, .n_tokens = 10000};
	assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), 0);
	assert_int_equal(store_seq_extend(q, ids, 10000, false, 0), 0);
	assert_int_equal(store_seq_publish(q, 0), 0);
	store_seq_close(q, 0);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		ids[cuts[i]] ^= 1;
		assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), 0);
		assert_int_equal(match.cached, cuts[i]);
		store_seq_close(q, 0);
		ids[cuts[i]] ^= 1;
	}
	fixture_done(&f);
}

/* Splits a node of every length at every token; contents and rows stay. */
/* Of the arrays of the path's nodes. */
static size_t path_bytes(const struct store_seq *q)
{
	size_t n_bytes = 0;

	for (const struct store_node *n = q->node; n->parent; n = n->parent)
		n_bytes += n->tokens_capacity * sizeof(*n->tokens) +
			   n->slices_capacity * sizeof(*n->slices);
	return n_bytes;
}

static void publish_one(struct fixture *f, const uint32_t *ids, uint32_t n)
{
	struct store_open open = {.model = f->model, .tokens = ids, .n_tokens = n};
	struct store_match match;
	struct store_seq *q;

	assert_int_equal(store_seq_open(f->store, &open, 0, &q, &match), 0);
	n -= match.cached;
	assert_int_equal(store_seq_extend(q, ids + match.cached, n, false, 0), 0);
	assert_int_equal(store_seq_publish(q, 0), 0);
	store_seq_close(q, 0);
}

/* From its end on: what is below each cut is a token of what was there. */
static void test_a_path_cut_at_every_token_takes_no_more_memory(void **state)
{
	enum { N = 2000, NODE_BYTES = 128 };
	static uint32_t ids[N];
	struct fixture f;
	struct store_match match;
	struct store_seq *q;
	(void)state;

	fixture_init(&f, (struct fixture_options){.page_tokens = 16,
						  .extent_pages = 64,
						  .n_extents = 64});
	publish_one(&f, ids, N);
	for (uint32_t at = N - 1; at > 0; at--) {
		ids[at] = 1;
		publish_one(&f, ids, at + 1);
		ids[at] = 0;
	}
	struct store_open open = {.model = f.model, .tokens = ids, .n_tokens = N};

	assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), 0);
	assert_int_equal(match.cached, N - 1);
	assert_true(path_bytes(q) <= N * NODE_BYTES);
	store_seq_close(q, 0);
	fixture_done(&f);
}

static void test_a_split_at_every_offset_moves_no_row(void **state)
{
	(void)state;
	for (uint32_t at = 1; at < strlen(TEXT); at++) {
		struct fixture f;
		char prompt[32] = TEXT;
		uint32_t page, row, pages[32];
		fixture_init(&f, (struct fixture_options){0});
		struct store_seq *a = fixture_compute(&f, TEXT);
		for (uint32_t pos = 0; pos < strlen(TEXT); pos++)
			fixture_row(a, pos, &pages[pos], &row);
		strcpy(prompt + at, "#");
		struct store_seq *b = fixture_compute(&f, prompt);
		assert_int_equal(fixture_stats(&f).n_nodes, 3);
		assert_int_equal(fixture_stats(&f).nodes_split, 1);
		assert_int_equal(store_node_pos(store_seq_node(a)), at);
		for (uint32_t pos = 0; pos < strlen(TEXT); pos++) {
			fixture_row(a, pos, &page, &row);
			assert_int_equal(page, pages[pos]);
			assert_int_equal(row, pos % 4);
			if (pos >= at)
				continue;
			fixture_row(b, pos, &page, &row);
			assert_int_equal(page, pages[pos]);
		}
		fixture_close(&f, a);
		fixture_close(&f, b);
		fixture_done(&f);
	}
}

static void test_a_split_repoints_who_stands_above_the_cut(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_compute(&f, TEXT);
	struct store_seq *b = fixture_open(&f, "abc#", NULL);
	struct store_seq *c = fixture_open(&f, "abcdefg#", NULL);
	assert_ptr_equal(store_seq_node(b), store_seq_node(a));
	struct store_seq *d = fixture_compute(&f, "abcde#");
	assert_ptr_equal(store_seq_node(b), store_node_parent(store_seq_node(a)));
	assert_ptr_equal(store_seq_node(c), store_seq_node(a));
	assert_ptr_equal(store_seq_node(b), store_node_parent(store_seq_node(d)));
	assert_int_equal(store_seq_n_tokens(b), 3);
	struct store_seq *all[] = {a, b, c, d};
	for (int i = 0; i < 4; i++)
		fixture_close(&f, all[i]);
	fixture_done(&f);
}

static void test_extending_inside_a_node_splits_it(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, TEXT);
	struct store_seq *q = fixture_open(&f, "abcdef#", NULL);
	assert_int_equal(fixture_extend(&f, q, "#", false), 0);
	struct store_node *n = store_seq_node(q);
	assert_int_equal(store_node_pos(n) + store_node_n_tokens(n), 6);
	store_seq_void(q, f.now_ns);
	fixture_check(&f);
	fixture_close(&f, q);
	assert_int_equal(fixture_cached(&f, TEXT "x"), strlen(TEXT));
	fixture_done(&f);
}

static void test_decoding_token_by_token_grows_one_node(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, "abcdef");
	struct store_seq *q = fixture_compute(&f, "abcd#");
	for (int i = 0; i < 50; i++)
		fixture_publish(&f, q, "x");
	assert_int_equal(fixture_stats(&f).n_nodes, 3);
	assert_int_equal(store_node_n_tokens(store_seq_node(q)), 51);
	fixture_close(&f, q);
	fixture_done(&f);
}

static void test_what_others_published_is_adopted_and_the_copy_dropped(void **state)
{
	struct fixture f;
	uint32_t page_a, page_b, row;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, "abcdef", NULL);
	struct store_seq *b = fixture_open(&f, "abcdXY", NULL);
	assert_int_equal(fixture_extend(&f, a, "abcdef", false), 0);
	assert_int_equal(fixture_extend(&f, b, "abcdXY", false), 0);
	assert_int_equal(fixture_stats(&f).n_pages, 4);
	assert_int_equal(store_seq_publish(a, 0), 0);
	assert_int_equal(store_seq_publish(b, 0), 0);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).tokens_dropped, 4);
	assert_int_equal(fixture_stats(&f).tokens_published, 8);
	assert_int_equal(fixture_stats(&f).n_pages, 3);
	fixture_row(a, 3, &page_a, &row);
	fixture_row(b, 3, &page_b, &row);
	assert_int_equal(page_a, page_b);
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_adopting_everything_leaves_nothing_of_the_copy(void **state)
{
	struct fixture f;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_seq *a = fixture_open(&f, TEXT, NULL), *b = fixture_open(&f, TEXT, NULL);
	assert_int_equal(fixture_extend(&f, b, TEXT, false), 0);
	fixture_publish(&f, a, TEXT);
	assert_int_equal(store_seq_publish(b, 0), 0);
	fixture_check(&f);
	assert_int_equal(fixture_stats(&f).n_pages, 4);
	assert_ptr_equal(store_seq_node(a), store_seq_node(b));
	fixture_close(&f, a);
	fixture_close(&f, b);
	fixture_done(&f);
}

static void test_spaces_do_not_see_each_other(void **state)
{
	struct fixture f;
	struct store_match match;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	struct store_model *other = fixture_model(&f, "other", 4, 100);
	fixture_leave(&f, TEXT);
	fixture_close(&f, fixture_open_in(&f, f.model, 2, 0, TEXT, &match));
	assert_int_equal(match.cached, 0);
	fixture_close(&f, fixture_open_in(&f, f.model, 1, 9, TEXT, &match));
	assert_int_equal(match.cached, 0);
	fixture_close(&f, fixture_open_in(&f, other, 1, 0, TEXT, &match));
	assert_int_equal(match.cached, 0);
	assert_int_equal(fixture_stats(&f).n_namespaces, 1);
	store_model_unref(other);
	fixture_done(&f);
}

static void test_hits_count_opens_through_a_node(void **state)
{
	struct fixture f;
	struct store_node_info info[8];
	uint64_t cursor = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fixture_leave(&f, TEXT);
	for (int i = 0; i < 3; i++)
		fixture_cached(&f, "abc#");
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 8), 2);
	assert_int_equal(info[0].hits, 4);
	assert_int_equal(info[1].hits, 3);
	assert_int_equal(info[1].parent_id, info[0].id);
	assert_int_equal(info[1].depth, 1);
	assert_int_equal(info[1].n_pages, 4);
	assert_int_equal(info[1].n_head, 8);
	assert_int_equal(info[1].head[7], 'h');
	assert_int_equal(store_walk(f.store, 1, &cursor, info, 8), 0);
	fixture_done(&f);
}

static void fork_texts(struct fixture *f)
{
	fixture_leave(f, "abcd1");
	fixture_leave(f, "abcd2x");
	fixture_leave(f, "abcd2y");
	fixture_leave(f, "b");
}

static void test_a_walk_in_pieces_is_the_walk_at_once(void **state)
{
	struct fixture f;
	struct store_node_info whole[16], one;
	uint64_t cursor = 0, piecewise = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fork_texts(&f);
	uint32_t n = store_walk(f.store, UINT64_MAX, &cursor, whole, 16);
	assert_int_equal(n, 7);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(store_walk(f.store, UINT64_MAX, &piecewise, &one, 1), 1);
		assert_int_equal(one.id, whole[i].id);
		assert_int_equal(one.depth, whole[i].depth);
		assert_true(i == 0 || one.depth <= whole[i - 1].depth + 1);
	}
	assert_int_equal(store_walk(f.store, UINT64_MAX, &piecewise, &one, 1), 0);
	fixture_done(&f);
}

static void test_a_walk_survives_what_goes_and_comes(void **state)
{
	(void)state;
	for (uint32_t stop = 1; stop < 7; stop++) {
		struct fixture f;
		struct store_node_info info[16];
		uint64_t cursor = 0;
		fixture_init(&f, (struct fixture_options){0});
		fork_texts(&f);
		struct store_seq *kept = fixture_compute(&f, "zzzz");
		uint32_t n = store_walk(f.store, UINT64_MAX, &cursor, info, stop);
		fixture_leave(&f, "zz#");
		store_evict(f.store, NULL, 1000, 1000);
		fixture_leave(&f, "new");
		bool found = false;
		for (uint32_t i = 0; i < n; i++)
			found |= info[i].n_head > 0 && info[i].head[0] == 'z';
		while ((n = store_walk(f.store, UINT64_MAX, &cursor, info, 2)) > 0)
			for (uint32_t i = 0; i < n; i++)
				found |= info[i].n_head > 0 && info[i].head[0] == 'z';
		assert_true(found);
		fixture_close(&f, kept);
		fixture_done(&f);
	}
}

static void test_an_abandoned_walk_ends_when_many_others_begin(void **state)
{
	struct fixture f;
	struct store_node_info info;
	uint64_t first = 0, last = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fork_texts(&f);
	assert_int_equal(store_walk(f.store, 1, &first, &info, 1), 1);
	for (int i = 0; i < 100; i++) {
		last = 0;
		assert_int_equal(store_walk(f.store, 1, &last, &info, 1), 1);
	}
	assert_int_equal(store_walk(f.store, 1, &first, &info, 1), 0);
	assert_int_equal(first, 0);
	assert_int_equal(store_walk(f.store, 1, &last, &info, 1), 1);
	fixture_done(&f);
}

static void test_as_many_walks_as_promised_go_on_at_once(void **state)
{
	struct fixture f;
	struct store_node_info info;
	uint64_t cursors[STORE_WALKS] = {0};
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fork_texts(&f);
	for (uint32_t step = 0; step < 7; step++)
		for (uint32_t i = 0; i < STORE_WALKS; i++)
			assert_int_equal(store_walk(f.store, 1, &cursors[i], &info, 1), 1);
	for (uint32_t i = 0; i < STORE_WALKS; i++) {
		assert_int_equal(store_walk(f.store, 1, &cursors[i], &info, 1), 0);
		assert_int_equal(cursors[i], 0);
	}
	fixture_done(&f);
}

static void test_a_cursor_is_its_askers_alone(void **state)
{
	struct fixture f;
	struct store_node_info info[8];
	uint64_t all = 0, own = 0;
	(void)state;

	fixture_init(&f, (struct fixture_options){0});
	fork_texts(&f);
	assert_int_equal(store_walk(f.store, UINT64_MAX, &all, info, 1), 1);
	assert_int_equal(store_walk(f.store, 1, &own, info, 1), 1);
	uint64_t stolen[] = {all, own, own, own + 1};
	assert_int_equal(store_walk(f.store, 1, &stolen[0], info, 8), 0);
	assert_int_equal(store_walk(f.store, 2, &stolen[1], info, 8), 0);
	assert_int_equal(store_walk(f.store, UINT64_MAX, &stolen[2], info, 8), 0);
	assert_int_equal(store_walk(f.store, 1, &stolen[3], info, 8), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(stolen[i], 0);
	assert_int_equal(store_walk(f.store, UINT64_MAX, &all, info, 8), 6);
	assert_int_equal(store_walk(f.store, 1, &own, info, 8), 6);
	fixture_done(&f);
}

static void test_many_children_of_one_node_are_found(void **state)
{
	struct fixture f;
	struct store_match match;
	struct store_seq *q;
	enum { N = 3000 };
	(void)state;

	fixture_init(&f, (struct fixture_options){.n_extents = 64, .extent_pages = 64});
	for (uint32_t i = 0; i < N; i++) {
		uint32_t ids[2] = {i, 5};
		struct store_open open = {.model = f.model, .tokens = ids, .n_tokens = 2};
		assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), 0);
		assert_int_equal(store_seq_extend(q, ids, 2, false, 0), 0);
		assert_int_equal(store_seq_publish(q, 0), 0);
		store_seq_close(q, 0);
	}
	for (uint32_t i = 0; i < N; i++) {
		uint32_t ids[3] = {i, 5, 6};
		struct store_open open = {.model = f.model, .tokens = ids, .n_tokens = 3};
		assert_int_equal(store_seq_open(f.store, &open, 0, &q, &match), 0);
		assert_int_equal(match.cached, 2);
		store_seq_close(q, 0);
	}
	fixture_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_match_is_exact_at_any_token),
		cmocka_unit_test(test_the_last_token_of_a_prompt_is_never_cached),
		cmocka_unit_test(test_long_runs_match_across_compare_blocks),
		cmocka_unit_test(test_a_path_cut_at_every_token_takes_no_more_memory),
		cmocka_unit_test(test_a_split_at_every_offset_moves_no_row),
		cmocka_unit_test(test_a_split_repoints_who_stands_above_the_cut),
		cmocka_unit_test(test_extending_inside_a_node_splits_it),
		cmocka_unit_test(test_decoding_token_by_token_grows_one_node),
		cmocka_unit_test(test_what_others_published_is_adopted_and_the_copy_dropped),
		cmocka_unit_test(test_adopting_everything_leaves_nothing_of_the_copy),
		cmocka_unit_test(test_spaces_do_not_see_each_other),
		cmocka_unit_test(test_hits_count_opens_through_a_node),
		cmocka_unit_test(test_a_walk_in_pieces_is_the_walk_at_once),
		cmocka_unit_test(test_a_walk_survives_what_goes_and_comes),
		cmocka_unit_test(test_an_abandoned_walk_ends_when_many_others_begin),
		cmocka_unit_test(test_as_many_walks_as_promised_go_on_at_once),
		cmocka_unit_test(test_a_cursor_is_its_askers_alone),
		cmocka_unit_test(test_many_children_of_one_node_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
