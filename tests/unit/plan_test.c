/*
 * plan_test.c - every policy against plan_list_check on random trees, what auto and none promise about bits, the
 * counts and choices that can be worked out by hand, and trees that break a rule. COPPICE_SEED repeats a run.
 */
#include "kernels/plan/fasttree.h"
#include "kernels/plan/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_NODES 256u
#define MAX_SLICES 8192u
#define MAX_QUERIES 256u
#define MAX_PARENTS 4096u

/* A tree that is being put together: every page belongs to one node. */
struct grove {
	struct work_node nodes[MAX_NODES];
	struct work_slice slices[MAX_SLICES];
	struct work_query queries[MAX_QUERIES];
	uint32_t parents[MAX_PARENTS];
	struct work_tree tree;
	uint32_t n_parents, n_pages, page_tokens;
};

static uint64_t rng_state;

static uint32_t rng(uint32_t below)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (uint32_t)(rng_state >> 16) % below;
}

static struct grove *grove_new(uint32_t page_tokens)
{
	struct grove *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->page_tokens = page_tokens;
	g->tree = (struct work_tree){.nodes = g->nodes, .slices = g->slices, .queries = g->queries};
	return g;
}

static uint32_t node_end(const struct grove *g, uint32_t node)
{
	return g->nodes[node].pos + g->nodes[node].n_tokens;
}

static uint32_t grove_root(struct grove *g, uint32_t pos, uint32_t n_tokens)
{
	struct work_node *node = &g->nodes[g->tree.n_nodes];
	uint32_t end = pos + n_tokens;

	assert_true(g->tree.n_nodes < MAX_NODES);
	*node = (struct work_node){WORK_NONE, pos, n_tokens, g->tree.n_slices, 0};
	for (uint32_t count; pos < end; pos += count) {
		uint32_t first = pos % g->page_tokens, page_left = g->page_tokens - first;

		assert_true(g->tree.n_slices < MAX_SLICES);
		count = page_left < end - pos ? page_left : end - pos;
		g->slices[g->tree.n_slices++] = (struct work_slice){.page = g->n_pages++,
								    .first = (uint16_t)first,
								    .count = (uint16_t)count};
	}
	node->n_slices = g->tree.n_slices - node->slice;
	return g->tree.n_nodes++;
}

static uint32_t grove_child(struct grove *g, uint32_t parent, uint32_t n_tokens)
{
	uint32_t node = grove_root(g, node_end(g, parent), n_tokens);

	g->nodes[node].parent = parent;
	return node;
}

/* The last n_rows positions of the node's path. */
static struct work_query *grove_query(struct grove *g, uint32_t node, uint32_t n_rows)
{
	struct work_query *query = &g->queries[g->tree.n_queries++];

	assert_true(g->tree.n_queries <= MAX_QUERIES);
	*query = (struct work_query){.node = node,
				     .pos = node_end(g, node) - n_rows,
				     .n_rows = n_rows};
	return query;
}

static void grove_draft(struct grove *g, uint32_t node, uint32_t n_rows)
{
	struct work_query *query = grove_query(g, node, n_rows);

	assert_true(g->n_parents + n_rows <= MAX_PARENTS);
	query->parents = &g->parents[g->n_parents];
	for (uint32_t i = 0; i < n_rows; i++)
		g->parents[g->n_parents++] = i && rng(5) ? rng(i) : WORK_NONE;
}

static struct plan_config config_of(enum plan_policy policy)
{
	struct work_shape shape = {
		.n_layers = 1, .n_q_heads = 8, .n_kv_heads = 8, .head_dim = 64, .page_tokens = 32};
	struct plan_config config;

	plan_config_init(&config, policy, &shape, 1);
	return config;
}

static void check(const struct grove *g, const struct work_list *list)
{
	char error[256] = "";
	int r = plan_list_check(&g->tree, list, error, sizeof(error));

	if (r)
		print_error("%s\n", error);
	assert_int_equal(r, 0);
}

static void make(const struct grove *g, const struct plan_config *config, struct work_list *list)
{
	assert_int_equal(plan_make(config, &g->tree, list), 0);
	check(g, list);
}

static uint32_t random_length(void)
{
	switch (rng(4)) {
	case 0:
		return 1 + rng(8);
	case 1:
		return 64 * (1 + rng(3));
	default:
		return 1 + rng(150);
	}
}

static void random_query(struct grove *g, uint32_t node)
{
	uint32_t leaf, n;

	switch (rng(6)) {
	case 0: /* at the node itself, perhaps before its end */
		grove_query(g, node, 1)->pos -= rng(4) ? 0 : rng(g->nodes[node].n_tokens);
		return;
	case 1: /* prefill */
		n = 1 + rng(90);
		grove_query(g, grove_child(g, node, n + rng(20)), n);
		return;
	case 2: /* drafts */
		n = 1 + rng(20);
		leaf = grove_child(g, node, n + rng(70));
		grove_draft(g, leaf, n);
		return;
	default:
		grove_query(g, grove_child(g, node, 1 + rng(30)), 1);
	}
}

static struct grove *random_grove(void)
{
	struct grove *g = grove_new(16u << rng(3));
	uint32_t n_inner = 1 + rng(12), n_queries = rng(24);

	grove_root(g, rng(3) ? 0 : rng(200), random_length());
	for (uint32_t i = 1; i < n_inner; i++) {
		if (rng(8) == 0)
			grove_root(g, rng(2) ? 0 : rng(300), random_length());
		else
			grove_child(g, rng(i), random_length());
	}
	for (uint32_t i = 0; i < n_queries; i++)
		random_query(g, rng(n_inner));
	if (rng(6) == 0)
		g->queries[g->tree.n_queries++] =
			(struct work_query){.node = WORK_NONE, .pos = rng(9), .n_rows = 1 + rng(3)};
	return g;
}

static struct plan_config random_config(enum plan_policy policy)
{
	static const uint32_t segments[] = {64, 128, 192, 512};
	static const uint32_t units[] = {1, 3, 16, 132};
	struct plan_config config = config_of(policy);

	config.group_heads = 1u << rng(4);
	config.tile_rows = 1u << rng(7);
	config.segment_tokens = segments[rng(4)];
	config.chunk_tokens = 1 + rng(200);
	config.n_units = units[rng(4)];
	config.deft = (enum plan_deft)rng(3);
	return config;
}

static void test_random_trees_pass_the_check(void **state)
{
	struct work_list list = {0};

	(void)state;
	for (int round = 0; round < 150; round++) {
		struct grove *g = random_grove();

		for (int policy = PLAN_AUTO; policy <= PLAN_DEFT; policy++) {
			struct plan_config config = random_config((enum plan_policy)policy);

			if (rng(4) == 0)
				config.tile_rows = PLAN_DEVICE_ROWS;

			make(g, &config, &list);
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
		make(g, &config, &list);
		config.policy = PLAN_NONE;
		make(g, &config, &none);
		for (uint32_t row = 0; row < list.n_rows; row++) {
			uint32_t query = list.rows[row].query, token = list.rows[row].token;

			one.queries = &g->queries[query];
			config.policy = rng(2) ? PLAN_AUTO : PLAN_NONE;
			config.n_units = 1 + rng(100);
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
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list chunk = {0}, step = {0};
	struct grove *g = grove_new(32);
	struct work_query decode;
	struct work_tree one = g->tree;
	uint32_t node = grove_child(g, grove_root(g, 0, 300), 700);

	(void)state;
	config.segment_tokens = 256;
	config.n_units = 64;
	grove_query(g, node, 650);
	make(g, &config, &chunk);
	one = g->tree;
	one.queries = &decode;
	for (uint32_t i = 0; i < 650; i += 1 + rng(40)) {
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
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(32);

	(void)state;
	grove_query(g, grove_child(g, grove_root(g, 0, 128), 1024), 1024);
	make(g, &config, &list);
	for (uint32_t t = 0; t < list.n_tiles; t++) {
		uint32_t pos = list.pieces[list.tiles[t].piece].pos;

		assert_int_equal(list.tiles[t].row_begin, pos < 128 ? 0 : pos - 128);
		assert_int_equal(list.tiles[t].row_end, 1024);
	}
	assert_int_equal(list.kv_tokens_read, 128 + 1024);
	plan_list_done(&list);
	free(g);
}

/* 100 shared tokens, then 60 of its own for each of two: block 0 is shared, block 1 is each one's own. */
static void test_a_block_straddling_nodes_belongs_to_its_last(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(64);
	uint32_t root = grove_root(g, 0, 100);

	(void)state;
	grove_query(g, grove_child(g, root, 60), 1);
	grove_query(g, grove_child(g, root, 60), 1);
	make(g, &config, &list);
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

static void test_long_contexts_split_at_absolute_segments(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(64);

	(void)state;
	grove_query(g, grove_root(g, 0, 5000), 1);
	config.segment_tokens = 512;
	make(g, &config, &list);
	assert_int_equal(list.n_items, 10);
	assert_int_equal(list.merge_first[1], 10);
	for (uint32_t i = 0; i < list.n_items; i++)
		assert_int_equal(list.pieces[list.tiles[list.items[i].tile].piece].pos, i * 512);
	plan_list_done(&list);
	free(g);
}

static struct grove *fan(uint32_t n_prefix, uint32_t n_queries, uint32_t n_own)
{
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, n_prefix);

	for (uint32_t i = 0; i < n_queries; i++)
		grove_query(g, grove_child(g, root, n_own), 1);
	return g;
}

static void test_auto_reads_a_shared_prefix_once(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = fan(4096, 64, 10);

	(void)state;
	make(g, &config, &list);
	assert_int_equal(list.kv_tokens_read, 4096 + 64 * 10);
	assert_int_equal(list.kv_tokens_alone, 64 * 4106);
	config.policy = PLAN_NONE;
	make(g, &config, &list);
	assert_int_equal(list.kv_tokens_read, list.kv_tokens_alone);
	plan_list_done(&list);
	free(g);
}

static void test_auto_cuts_rows_when_units_would_idle(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = fan(512, 128, 3);

	(void)state;
	config.segment_tokens = 512;
	make(g, &config, &list);
	assert_in_range(list.n_items, 2, 3);
	config.n_units = 8;
	make(g, &config, &list);
	assert_in_range(list.n_items, 8, 20);
	plan_list_done(&list);
	free(g);
}

/* Two subtrees of 32 under one root: of all borders between rows, theirs is the cheapest. */
static void test_auto_cuts_between_subtrees(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, 64);
	uint32_t left = grove_child(g, root, 384), right = grove_child(g, root, 384);

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		grove_query(g, grove_child(g, i % 2 ? left : right, 64), 1);
	make(g, &config, &list);
	assert_int_equal(list.n_items, 2);
	assert_int_equal(list.items[0].row_end, 32);
	assert_int_equal(list.items[1].row_begin, 32);
	plan_list_done(&list);
	free(g);
}

static void test_none_makes_an_item_per_query_and_segment(void **state)
{
	struct plan_config config = config_of(PLAN_NONE);
	struct work_list list = {0};
	struct grove *g = fan(1000, 5, 100);

	(void)state;
	config.segment_tokens = 512;
	make(g, &config, &list);
	assert_int_equal(list.n_items, 5 * 3);
	for (uint32_t i = 0; i < list.n_items; i++)
		assert_int_equal(list.items[i].row_end - list.items[i].row_begin, 1);
	plan_list_done(&list);
	free(g);
}

static void test_cascade_makes_an_item_per_node(void **state)
{
	struct plan_config config = config_of(PLAN_CASCADE);
	struct work_list list = {0};
	struct grove *g = fan(1000, 5, 100);

	(void)state;
	make(g, &config, &list);
	assert_int_equal(list.n_items, 6);
	assert_int_equal(list.items[0].row_end, 5);
	assert_int_equal(list.items[0].n_tiles, 16);
	assert_int_equal(list.kv_tokens_read, 1500);
	assert_int_equal(list.merge_first[5], 10);
	plan_list_done(&list);
	free(g);
}

static void test_deft_cuts_nodes_and_flattened_trees(void **state)
{
	static const struct {
		enum plan_deft deft;
		uint32_t n_items;
	} cases[] = {{PLAN_DEFT_NODE, 6}, {PLAN_DEFT_NODE_CHUNK, 13}, {PLAN_DEFT_FLATTEN, 12}};
	struct plan_config config = config_of(PLAN_DEFT);
	struct work_list list = {0};
	struct grove *g = fan(1000, 5, 100);

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		config.deft = cases[i].deft;
		make(g, &config, &list);
		assert_int_equal(list.n_items, cases[i].n_items);
		assert_int_equal(list.kv_tokens_read, 1500);
		assert_int_equal(list.n_masks != 0, cases[i].deft == PLAN_DEFT_FLATTEN);
	}
	/* 1500 tokens in 12 items of 125, the last of two leaves: its first piece is the one row's, its last the other's */
	assert_int_equal(list.masks[list.items[11].mask], 1);
	assert_int_equal(list.masks[list.n_masks - 1], 2);
	plan_list_done(&list);
	free(g);
}

/* Tokens 0 (1 (3) 2) 4: rows in depth-first order, a piece for each token. */
static void test_draft_tokens_are_seen_by_their_subtree(void **state)
{
	static const uint32_t parents[] = {WORK_NONE, 0, 0, 1, WORK_NONE};
	static const uint32_t order[] = {0, 1, 3, 2, 4};
	static const uint32_t ends[] = {4, 3, 4, 3, 5}; /* by token */
	struct work_list list = {0};
	struct grove *g = grove_new(64);

	(void)state;
	grove_query(g, grove_child(g, grove_root(g, 0, 60), 7), 5)->parents = parents;
	for (int policy = PLAN_AUTO; policy <= PLAN_DEFT; policy++) {
		struct plan_config config = config_of((enum plan_policy)policy);

		make(g, &config, &list);
		for (uint32_t i = 0; i < 5; i++)
			assert_int_equal(list.rows[i].token, order[i]);
		for (uint32_t p = 0; p < list.n_pieces; p++) {
			uint32_t token = list.pieces[p].pos - 62;

			if (list.pieces[p].pos < 62)
				continue;
			assert_int_equal(list.pieces[p].count, 1);
			assert_int_equal(list.rows[list.pieces[p].row_begin].token, token);
			assert_int_equal(list.pieces[p].row_end, ends[token]);
		}
	}
	plan_list_done(&list);
	free(g);
}

static void test_fasttree_cost_is_the_published_one(void **state)
{
	struct plan_config config = config_of(PLAN_FASTTREE);
	struct fasttree_tiles tiles;

	(void)state;
	fasttree_tiles_init(&tiles, &config);
	assert_float_equal(fasttree_cost(&config, &tiles, 2, 1000), 0.66 * 14 * 1000, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 1, 10), 0.66 * 15 * 10 + 0.33 * 22, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 17, 1000), 0.66 * 47 * 1000, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 16, 10), 0.33 * 22 * 16, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 0, 10), 0, 1e-6);
	/* apart 9240 + 106.26 + 0.1, together 9900 + 9999 */
	assert_false(fasttree_together(&config, &tiles, 2, 1000, 1, 10));
	/* apart 380.16 + 116.16 + 1.6, together 147.84 + 95.04 */
	assert_true(fasttree_together(&config, &tiles, 32, 4, 16, 10));
	config.group_heads = 4;
	fasttree_tiles_init(&tiles, &config);
	assert_float_equal(fasttree_cost(&config, &tiles, 3, 1000), 4 * 0.66 * 1000, 1e-6);
}

/* A node of sixteen rows fills a narrow tile and takes the root along; the two single ones share it. */
static void test_fasttree_takes_the_root_where_that_is_cheaper(void **state)
{
	struct plan_config config = config_of(PLAN_FASTTREE);
	struct work_list list = {0};
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, 1000), wide = grove_child(g, root, 10);

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		grove_query(g, wide, 1);
	grove_query(g, grove_child(g, root, 10), 1);
	grove_query(g, grove_child(g, root, 10), 1);
	make(g, &config, &list);
	assert_int_equal(list.n_items, 4);
	assert_int_equal(list.kv_tokens_read, 1000 + 1010 + 10 + 10);
	assert_int_equal(list.items[0].row_end - list.items[0].row_begin, 2);
	assert_int_equal(list.items[1].row_end - list.items[1].row_begin, 16);
	assert_int_equal(list.rows[0].query, 16);
	assert_int_equal(list.merge_first[18], 2 * 2 + 16);
	plan_list_done(&list);
	free(g);
}

static void test_fasttree_splits_long_contexts_for_idle_units(void **state)
{
	struct plan_config config = config_of(PLAN_FASTTREE);
	struct work_list list = {0};
	struct grove *g = fan(4096, 2, 10);

	(void)state;
	make(g, &config, &list);
	assert_int_equal(list.n_items, 4 + 2);
	config.n_units = 8;
	make(g, &config, &list);
	assert_int_equal(list.n_items, 32 + 2);
	plan_list_done(&list);
	free(g);
}

static void test_empty_cases_are_plans(void **state)
{
	struct work_list list = {0};
	struct grove *empty = grove_new(32), *g = grove_new(32);

	(void)state;
	g->queries[g->tree.n_queries++] = (struct work_query){.node = WORK_NONE, .n_rows = 3};
	/* a root that begins after the row */
	g->queries[g->tree.n_queries++] =
		(struct work_query){.node = grove_root(g, 64, 64), .pos = 10, .n_rows = 1};
	for (int policy = PLAN_AUTO; policy <= PLAN_DEFT; policy++) {
		struct plan_config config = config_of((enum plan_policy)policy);

		make(empty, &config, &list);
		assert_int_equal(list.n_rows, 0);
		make(g, &config, &list);
		assert_int_equal(list.n_rows, 4);
		assert_int_equal(list.n_items, 0);
		assert_int_equal(list.merge_first[4], 0);
	}
	plan_list_done(&list);
	free(empty);
	free(g);
}

static int make_broken(struct grove *g)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	int r = plan_make(&config, &g->tree, &list);

	assert_int_equal(list.n_rows, 0);
	plan_list_done(&list);
	return r;
}

#define REFUSED(change) \
	do { \
		struct grove *g = fan(100, 2, 10); \
		change; \
		assert_int_equal(make_broken(g), -EINVAL); \
		free(g); \
	} while (0)

static void test_trees_that_break_a_rule_are_refused(void **state)
{
	static const uint32_t forward[] = {WORK_NONE, 1, 0}, fork[] = {WORK_NONE, 0, 0};

	(void)state;
	REFUSED(g->nodes[1].parent = 2);
	REFUSED(g->nodes[1].pos = 99);
	REFUSED(g->nodes[1].n_tokens = 0);
	REFUSED(g->nodes[1].n_tokens = 11);
	REFUSED(g->nodes[2].n_slices++);
	REFUSED(g->nodes[2].slice = UINT32_MAX);
	REFUSED(g->nodes[0].pos = UINT32_MAX - 50);
	REFUSED(g->slices[0].count = 0);
	REFUSED(g->slices[0].first = 60);
	REFUSED(g->queries[0].node = 3);
	REFUSED(g->queries[0].n_rows = 0);
	REFUSED(g->queries[0].n_rows = UINT32_MAX);
	REFUSED((g->queries[0].pos = 109, g->queries[0].n_rows = 2));
	REFUSED(g->queries[0] = ((struct work_query){1, 110, 3, forward}));
	REFUSED(g->queries[0] = ((struct work_query){1, 107, 3, forward}));
	REFUSED(g->queries[0] = ((struct work_query){1, 106, 3, fork}));
	REFUSED(g->queries[0] = ((struct work_query){WORK_NONE, 0, 3, fork}));
	REFUSED(g->queries[0] = ((struct work_query){2, 107, 3, fork}));
}

/* Where its own tokens are elsewhere, all rows see all of the path. */
static void test_a_query_may_come_behind_its_node(void **state)
{
	static const enum plan_policy policies[] = {PLAN_AUTO, PLAN_NONE, PLAN_CASCADE,
						    PLAN_FASTTREE, PLAN_DEFT};

	(void)state;
	for (uint32_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		struct plan_config config = config_of(policies[i]);
		struct work_list list = {0};
		struct grove *g = fan(1000, 3, 70);

		g->queries[0] = (struct work_query){1, 1070, 40, NULL};
		g->queries[1] = (struct work_query){2, 5000, 3, NULL};
		make(g, &config, &list);
		plan_list_done(&list);
		free(g);
	}
}

static void test_configs_that_make_no_sense_are_refused(void **state)
{
	struct plan_config config = config_of(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = fan(100, 2, 10);

	(void)state;
	config.segment_tokens = 100;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	config = config_of(PLAN_DEFT);
	config.chunk_tokens = 0;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	config.policy = PLAN_FASTTREE;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	plan_list_done(&list);
	free(g);
}

static void test_the_check_finds_faults(void **state)
{
	struct plan_config config = config_of(PLAN_DEFT);
	struct work_list list = {0};
	struct grove *g = fan(100, 3, 10);
	char error[128];

	(void)state;
	make(g, &config, &list);
	list.masks[0] ^= 1;
	assert_int_equal(plan_list_check(&g->tree, &list, error, sizeof(error)), -EINVAL);
	list.masks[0] ^= 1;
	list.pieces[0].pos++;
	list.rows[0].pos -= 10;
	assert_int_equal(plan_list_check(&g->tree, &list, error, sizeof(error)), -EINVAL);
	list.pieces[0].pos--;
	list.rows[0].pos += 10;
	list.merge_first[1]--;
	assert_int_equal(plan_list_check(&g->tree, &list, error, sizeof(error)), -EINVAL);
	list.merge_first[1]++;
	check(g, &list);
	plan_list_done(&list);
	free(g);
}

static void test_policies_have_names(void **state)
{
	static const char *const names[] = {"auto", "none", "cascade", "fasttree", "deft"};
	struct plan_config config = config_of(PLAN_AUTO);

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(plan_policy_parse(names[i], &config), 0);
		assert_int_equal(config.policy, i);
		assert_string_equal(plan_policy_name((enum plan_policy)i), names[i]);
	}
	assert_int_equal(plan_policy_parse("deft-chunk", &config), 0);
	assert_int_equal(config.deft, PLAN_DEFT_NODE_CHUNK);
	assert_int_equal(plan_policy_parse("deft-node", &config), 0);
	assert_int_equal(config.deft, PLAN_DEFT_NODE);
	assert_int_equal(plan_policy_parse("greedy", &config), -EINVAL);
	assert_int_equal(config.deft, PLAN_DEFT_NODE);
}

int main(void)
{
	const char *seed = getenv("COPPICE_SEED");
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
		cmocka_unit_test(test_none_makes_an_item_per_query_and_segment),
		cmocka_unit_test(test_cascade_makes_an_item_per_node),
		cmocka_unit_test(test_deft_cuts_nodes_and_flattened_trees),
		cmocka_unit_test(test_draft_tokens_are_seen_by_their_subtree),
		cmocka_unit_test(test_fasttree_cost_is_the_published_one),
		cmocka_unit_test(test_fasttree_takes_the_root_where_that_is_cheaper),
		cmocka_unit_test(test_fasttree_splits_long_contexts_for_idle_units),
		cmocka_unit_test(test_empty_cases_are_plans),
		cmocka_unit_test(test_trees_that_break_a_rule_are_refused),
		cmocka_unit_test(test_a_query_may_come_behind_its_node),
		cmocka_unit_test(test_configs_that_make_no_sense_are_refused),
		cmocka_unit_test(test_the_check_finds_faults),
		cmocka_unit_test(test_policies_have_names),
	};

	rng_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("COPPICE_SEED=%llu\n", (unsigned long long)rng_state);
	rng_state = rng_state * UINT64_C(0x9e3779b97f4a7c15) | 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
