/*
 * plan_published_test.c - the policies of published systems, and draft trees in all: counts, costs
 * and choices that can be worked out by hand.
 */
#include "grove.h"
#include "kernels/plan/fasttree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_cascade_makes_an_item_per_node(void **state)
{
	struct plan_config config = grove_config(PLAN_CASCADE);
	struct work_list list = {0};
	struct grove *g = grove_fan(1000, 5, 100);

	(void)state;
	grove_plan(g, &config, &list);
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
	struct plan_config config = grove_config(PLAN_DEFT);
	struct work_list list = {0};
	struct grove *g = grove_fan(1000, 5, 100);

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		config.deft = cases[i].deft;
		grove_plan(g, &config, &list);
		assert_int_equal(list.n_items, cases[i].n_items);
		assert_int_equal(list.kv_tokens_read, 1500);
		assert_int_equal(list.n_masks != 0, cases[i].deft == PLAN_DEFT_FLATTEN);
	}
	/* 1500 tokens in 12 items of 125, the last of two leaves: its first piece is the one row's,
	 * its last the other's */
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
	for (uint32_t way = 0; way < PLAN_N_WAYS; way++) {
		struct plan_config config = grove_config_way(way);

		grove_plan(g, &config, &list);
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
	struct plan_config config = grove_config(PLAN_FASTTREE);
	struct fasttree_tiles tiles;

	(void)state;
	fasttree_tiles_init(&tiles, &config);
	assert_float_equal(fasttree_cost(&config, &tiles, 2, 1000), 0.66 * 14 * 1000, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 1, 10), 0.66 * 15 * 10 + 0.33 * 22, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 17, 1000), 0.66 * 47 * 1000, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 16, 10), 0.33 * 22 * 16, 1e-6);
	assert_float_equal(fasttree_cost(&config, &tiles, 0, 10), 0, 1e-6);
	/* apart 9240 + 106.26 + 0.1, together 9900 + 9999 */
	assert_false(fasttree_together(&config, &tiles, (struct fasttree_group){2, 1000},
				       (struct fasttree_group){1, 10}));
	/* apart 380.16 + 116.16 + 1.6, together 147.84 + 95.04 */
	assert_true(fasttree_together(&config, &tiles, (struct fasttree_group){32, 4},
				      (struct fasttree_group){16, 10}));
	config.group_heads = 4;
	fasttree_tiles_init(&tiles, &config);
	assert_float_equal(fasttree_cost(&config, &tiles, 3, 1000), 4 * 0.66 * 1000, 1e-6);
}

/* A node of sixteen rows fills a narrow tile and takes the root along; the two single ones share
 * it. */
static void test_fasttree_takes_the_root_where_that_is_cheaper(void **state)
{
	struct plan_config config = grove_config(PLAN_FASTTREE);
	struct work_list list = {0};
	struct grove *g = grove_new(32);
	uint32_t root = grove_root(g, 0, 1000), wide = grove_child(g, root, 10);

	(void)state;
	for (uint32_t i = 0; i < 16; i++)
		grove_query(g, wide, 1);
	grove_query(g, grove_child(g, root, 10), 1);
	grove_query(g, grove_child(g, root, 10), 1);
	grove_plan(g, &config, &list);
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
	struct plan_config config = grove_config(PLAN_FASTTREE);
	struct work_list list = {0};
	struct grove *g = grove_fan(4096, 2, 10);

	(void)state;
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 4 + 2);
	config.n_units = 8;
	grove_plan(g, &config, &list);
	assert_int_equal(list.n_items, 32 + 2);
	plan_list_done(&list);
	free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cascade_makes_an_item_per_node),
		cmocka_unit_test(test_deft_cuts_nodes_and_flattened_trees),
		cmocka_unit_test(test_draft_tokens_are_seen_by_their_subtree),
		cmocka_unit_test(test_fasttree_cost_is_the_published_one),
		cmocka_unit_test(test_fasttree_takes_the_root_where_that_is_cheaper),
		cmocka_unit_test(test_fasttree_splits_long_contexts_for_idle_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
