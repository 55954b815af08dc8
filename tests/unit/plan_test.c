/*
 * plan_test.c - every policy against plan_list_check on random trees, what auto and none promise
 * about bits, and how they group. COPPICE_SEED repeats a run.
 */
#include "grove.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t random_length(void)
{
	switch (grove_below(4)) {
	case 0:
		return 1 + grove_below(8);
	case 1:
		return 64 * (1 + grove_below(3));
	default:
		return 1 + grove_below(150);
	}
}

static void random_query(struct grove *g, uint32_t node)
{
	uint32_t leaf, n;

	switch (grove_below(6)) {
	case 0: /* at the node itself, perhaps before its end */
		grove_query(g, node, 1)->pos -=
			grove_below(4) ? 0 : grove_below(g->nodes[node].n_tokens);
		return;
	case 1: /* prefill */
		n = 1 + grove_below(90);
		grove_query(g, grove_child(g, node, n + grove_below(20)), n);
		return;
	case 2: /* drafts */
		n = 1 + grove_below(20);
		leaf = grove_child(g, node, n + grove_below(70));
		grove_draft(g, leaf, n);
		return;
	default:
		grove_query(g, grove_child(g, node, 1 + grove_below(30)), 1);
	}
}

static struct grove *random_grove(void)
{
	struct grove *g = grove_new(16u << grove_below(3));
	uint32_t n_inner = 1 + grove_below(12), n_queries = grove_below(24);

	grove_root(g, grove_below(3) ? 0 : grove_below(200), random_length());
	for (uint32_t i = 1; i < n_inner; i++) {
		if (grove_below(8) == 0)
			grove_root(g, grove_below(2) ? 0 : grove_below(300), random_length());
		else
			grove_child(g, grove_below(i), random_length());
	}
	for (uint32_t i = 0; i < n_queries; i++)
		random_query(g, grove_below(n_inner));
	if (grove_below(6) == 0)
		g->queries[g->tree.n_queries++] = (struct work_query){.node = WORK_NONE,
								      .pos = grove_below(9),
								      .n_rows = 1 + grove_below(3)};
	return g;
}

static struct plan_config random_config(uint32_t way)
{
	static const uint32_t segments[] = {64, 128, 192, 512};
	static const uint32_t units[] = {1, 3, 16, 132};
	struct plan_config config = grove_config_way(way);

	config.group_heads = 1u << grove_below(4);
	config.tile_rows = 1u << grove_below(7);
	config.segment_tokens = segments[grove_below(4)];
	config.chunk_tokens = 1 + grove_below(200);
	config.n_units = units[grove_below(4)];
	config.deft = (enum plan_deft)grove_below(3);
	return config;
}

static void test_random_trees_pass_the_check(void **state)
{
	struct work_list list = {0};

	(void)state;
	for (int round = 0; round < 150; round++) {
		struct grove *g = random_grove();

		for (uint32_t way = 0; way < PLAN_N_WAYS; way++) {
			struct plan_config config = random_config(way);

			if (grove_below(4) == 0)
				config.tile_rows = PLAN_DEVICE_ROWS;

			grove_plan(g, &config, &list);
		}
		free(g);
	}
	plan_list_done(&list);
}

/* What the row folds: partial after partial, tile after tile, key by key. */
static size_t trace(const struct work_list *list, uint32_t row, uint64_t *words)
{
	size_t n = 0;

	for (uint32_t m = list->merge_first[row]; m < list->merge_first[row + 1]; m++) {
		const struct work_item *item = list->items;

		while (list->merge_parts[m] - item->part >= item->row_end - item->row_begin)
			item++;
		words[n++] = UINT64_MAX;
		for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
			const struct work_tile *tile = &list->tiles[t];
			size_t n_before = n++;

			for (uint32_t p = tile->piece; p < tile->piece + tile->n_pieces; p++) {
				const struct work_piece *piece = &list->pieces[p];

				for (uint32_t j = 0; j < piece->count; j++)
					if (row >= piece->row_begin && row < piece->row_end &&
					    piece->pos + j <= list->rows[row].pos)
						words[n++] = (uint64_t)piece->page << 16 |
							     (piece->first + j) << 8 |
							     (piece->key + j);
			}
			words[n_before] = UINT64_MAX - 1;
			if (n == n_before + 1)
				n = n_before;
		}
	}
	return n;
}

static uint32_t row_of(const struct work_list *list, uint32_t query, uint32_t token)
{
	uint32_t row = 0;

	while (list->rows[row].query != query || list->rows[row].token != token)
		row++;
	return row;
}

#define TRACE_WORDS 65536u
static uint64_t trace_one[TRACE_WORDS], trace_other[TRACE_WORDS];

static void assert_same_folds(const struct work_list *one, uint32_t row,
			      const struct work_list *other, uint32_t other_row)
{
	size_t n = trace(one, row, trace_one);

	assert_int_equal(n, trace(other, other_row, trace_other));
	assert_memory_equal(trace_one, trace_other, n * sizeof(trace_one[0]));
}

static void test_rows_fold_the_same_alone_and_in_company(void **state)
{
	struct work_list list = {0}, none = {0}, alone = {0};

	(void)state;
	for (int round = 0; round < 60; round++) {
		struct grove *g = random_grove();
		struct work_tree one = g->tree;
		struct plan_config config = random_config(PLAN_AUTO);

		one.n_queries = 1;
		grove_plan(g, &config, &list);
		config.policy = PLAN_NONE;
		grove_plan(g, &config, &none);
		for (uint32_t row = 0; row < list.n_rows; row++) {
			uint32_t query = list.rows[row].query, token = list.rows[row].token;

			one.queries = &g->queries[query];
			config.policy = grove_below(2) ? PLAN_AUTO : PLAN_NONE;
			config.n_units = 1 + grove_below(100);
			assert_int_equal(plan_make(&config, &one, &alone), 0);
			assert_same_folds(&list, row, &none, row_of(&none, query, token));
			assert_same_folds(&list, row, &alone, row_of(&alone, 0, token));
		}
		free(g);
	}
	plan_list_done(&list);
	plan_list_done(&none);
	plan_list_done(&alone);
}

static void test_prefill_rows_fold_like_decode_steps(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list chunk = {0}, step = {0};
	struct grove *g = grove_new(32);
	struct work_query decode;
	struct work_tree one = g->tree;
	uint32_t node = grove_child(g, grove_root(g, 0, 300), 700);

	(void)state;
	config.segment_tokens = 256;
	config.n_units = 64;
	grove_query(g, node, 650);
	grove_plan(g, &config, &chunk);
	one = g->tree;
	one.queries = &decode;
	for (uint32_t i = 0; i < 650; i += 1 + grove_below(40)) {
		decode = (struct work_query){.node = node, .pos = 350 + i, .n_rows = 1};
		assert_int_equal(plan_make(&config, &one, &step), 0);
		assert_same_folds(&chunk, i, &step, 0);
	}
	plan_list_done(&chunk);
	plan_list_done(&step);
	free(g);
}

static void test_prefill_tiles_leave_out_rows_before_them(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(32);

	(void)state;
	grove_query(g, grove_child(g, grove_root(g, 0, 128), 1024), 1024);
	grove_plan(g, &config, &list);
	for (uint32_t t = 0; t < list.n_tiles; t++) {
		uint32_t pos = list.pieces[list.tiles[t].piece].pos;

		assert_int_equal(list.tiles[t].row_begin, pos < 128 ? 0 : pos - 128);
		assert_int_equal(list.tiles[t].row_end, 1024);
	}
	assert_int_equal(list.kv_tokens_read, 128 + 1024);
	plan_list_done(&list);
	free(g);
}

/* 100 shared tokens, then 60 of its own for each of two: block 0 is shared, block 1 is each one's
 * own. */
static void test_a_block_straddling_nodes_belongs_to_its_last(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(64);
	uint32_t root = grove_root(g, 0, 100);

	(void)state;
	grove_query(g, grove_child(g, root, 60), 1);
	grove_query(g, grove_child(g, root, 60), 1);
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 1);
	assert_int_equal(list.n_tiles, 5);
	assert_int_equal(list.tiles[0].n_pieces, 1);
	assert_int_equal(list.tiles[0].row_end, 2);
	assert_int_equal(list.tiles[1].n_pieces, 2);
	assert_int_equal(list.tiles[1].row_end, 1);
	assert_int_equal(list.pieces[2].key, 36);
	assert_int_equal(list.tiles[3].row_begin, 1);
	assert_int_equal(list.kv_tokens_read, 64 + 2 * 96);
	assert_int_equal(list.kv_tokens_alone, 2 * 160);
	plan_list_done(&list);
	free(g);
}

/* So many tokens in n segments, an item each. */
static void assert_segments(uint32_t n_tokens, uint32_t n)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(64);

	grove_query(g, grove_root(g, 0, n_tokens), 1);
	config.segment_tokens = 512;
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, n);
	assert_int_equal(list.merge_first[1], n);
	for (uint32_t i = 0; i < list.n_items; i++)
		assert_int_equal(list.pieces[list.tiles[list.items[i].tile].piece].pos, i * 512);
	plan_list_done(&list);
	free(g);
}

static void test_long_contexts_split_at_absolute_segments(void **state)
{
	(void)state;
	for (uint32_t n = 2; n <= 64; n++) {
		assert_segments(n * 512 - 120, n);
		assert_segments(n * 512, n); /* the last one is full */
	}
}

static void test_auto_reads_a_shared_prefix_once(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_fan(4096, 64, 10);

	(void)state;
	grove_plan(g, &config, &list);
	assert_int_equal(list.kv_tokens_read, 4096 + 64 * 10);
	assert_int_equal(list.kv_tokens_alone, 64 * 4106);
	config.policy = PLAN_NONE;
	grove_plan(g, &config, &list);
	assert_int_equal(list.kv_tokens_read, list.kv_tokens_alone);
	plan_list_done(&list);
	free(g);
}

static void test_auto_cuts_rows_when_units_would_idle(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_fan(512, 128, 3);

	(void)state;
	config.segment_tokens = 512;
	grove_plan(g, &config, &list);
	assert_in_range(list.n_items, 2, 3);
	config.n_units = 8;
	grove_plan(g, &config, &list);
	assert_in_range(list.n_items, 8, 20);
	plan_list_done(&list);
	free(g);
}

/* Two subtrees of 32 under one root: of all borders between rows, theirs is the cheapest. */
static void test_auto_cuts_between_subtrees(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, 64);
	uint32_t left = grove_child(g, root, 384), right = grove_child(g, root, 384);

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		grove_query(g, grove_child(g, i % 2 ? left : right, 64), 1);
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 2);
	assert_int_equal(list.items[0].row_end, 32);
	assert_int_equal(list.items[1].row_begin, 32);
	plan_list_done(&list);
	free(g);
}

/* Two roots, and three queries below each: what shares a token is one item, uncut. */
static void test_a_backend_that_cuts_by_itself_gets_an_item_a_root(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(32);
	uint32_t roots[] = {grove_root(g, 0, 300), grove_root(g, 0, 200)};

	(void)state;
	config.tile_rows = PLAN_DEVICE_ROWS;
	for (uint32_t i = 0; i < 6; i++)
		grove_query(g, grove_child(g, roots[i % 2], 40), 1);
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(list.items[i].row_begin, 3 * i);
		assert_int_equal(list.items[i].row_end, 3 * i + 3);
	}
	assert_int_equal(list.kv_tokens_read, 300 + 200 + 6 * 40);
	plan_list_done(&list);
	free(g);
}

static void test_none_makes_an_item_per_query_and_segment(void **state)
{
	struct plan_config config = grove_config(PLAN_NONE);
	struct work_list list = {0};
	struct grove *g = grove_fan(1000, 5, 100);

	(void)state;
	config.segment_tokens = 512;
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 5 * 3);
	for (uint32_t i = 0; i < list.n_items; i++)
		assert_int_equal(list.items[i].row_end - list.items[i].row_begin, 1);
	plan_list_done(&list);
	free(g);
}

static void test_policies_have_names(void **state)
{
	static const struct {
		const char *name;
		enum plan_policy policy;
	} known[] = {{"auto", PLAN_AUTO},
		     {"none", PLAN_NONE},
		     {"cascade", PLAN_CASCADE},
		     {"fasttree", PLAN_FASTTREE},
		     {"deft", PLAN_DEFT}};
	struct plan_config config = grove_config(PLAN_AUTO);

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		assert_int_equal(plan_policy_parse(known[i].name, &config), 0);
		assert_int_equal(config.policy, known[i].policy);
		assert_string_equal(plan_policy_name(known[i].policy), known[i].name);
	}
	assert_int_equal(plan_policy_parse("deft-flatten", &config), 0);
	assert_int_equal(config.policy, PLAN_DEFT);
	assert_int_equal(config.deft, PLAN_DEFT_FLATTEN);
	assert_int_equal(plan_policy_parse("deft-chunk", &config), 0);
	assert_int_equal(config.deft, PLAN_DEFT_NODE_CHUNK);
	assert_int_equal(plan_policy_parse("deft-node", &config), 0);
	assert_int_equal(config.deft, PLAN_DEFT_NODE);
	assert_int_equal(plan_policy_parse("greedy", &config), -EINVAL);
	assert_int_equal(config.deft, PLAN_DEFT_NODE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_trees_pass_the_check),
		cmocka_unit_test(test_rows_fold_the_same_alone_and_in_company),
		cmocka_unit_test(test_prefill_rows_fold_like_decode_steps),
		cmocka_unit_test(test_prefill_tiles_leave_out_rows_before_them),
		cmocka_unit_test(test_a_block_straddling_nodes_belongs_to_its_last),
		cmocka_unit_test(test_long_contexts_split_at_absolute_segments),
		cmocka_unit_test(test_auto_reads_a_shared_prefix_once),
		cmocka_unit_test(test_auto_cuts_rows_when_units_would_idle),
		cmocka_unit_test(test_auto_cuts_between_subtrees),
		cmocka_unit_test(test_a_backend_that_cuts_by_itself_gets_an_item_a_root),
		cmocka_unit_test(test_none_makes_an_item_per_query_and_segment),
		cmocka_unit_test(test_policies_have_names),
	};

	grove_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
