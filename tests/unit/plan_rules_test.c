/*
 * plan_rules_test.c - trees without anything to do, trees and configs that break a rule, and lists
 * that plan_list_check finds fault with.
 */
#include "grove.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_empty_cases_are_plans(void **state)
{
	struct work_list list = {0};
	struct grove *empty = grove_new(32), *g = grove_new(32);

	(void)state;
	g->queries[g->tree.n_queries++] = (struct work_query){.node = WORK_NONE, .n_rows = 3};
	/* a root that begins after the row */
	g->queries[g->tree.n_queries++] =
		(struct work_query){.node = grove_root(g, 64, 64), .pos = 10, .n_rows = 1};
	for (uint32_t way = 0; way < PLAN_N_WAYS; way++) {
		struct plan_config config = grove_config_way(way);

		grove_plan(empty, &config, &list);
		assert_int_equal(list.n_rows, 0);
		grove_plan(g, &config, &list);
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
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	int r = plan_make(&config, &g->tree, &list);

	assert_int_equal(list.n_rows, 0);
	plan_list_done(&list);
	return r;
}

#define REFUSED(change) \
	do { \
		struct grove *g = grove_fan(100, 2, 10); \
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
	(void)state;
	for (uint32_t way = 0; way < PLAN_N_WAYS; way++) {
		struct plan_config config = grove_config_way(way);
		struct work_list list = {0};
		struct grove *g = grove_fan(1000, 3, 70);

		g->queries[0] = (struct work_query){1, 1070, 40, NULL};
		g->queries[1] = (struct work_query){2, 5000, 3, NULL};
		grove_plan(g, &config, &list);
		plan_list_done(&list);
		free(g);
	}
}

static void test_configs_that_make_no_sense_are_refused(void **state)
{
	struct plan_config config = grove_config(PLAN_AUTO);
	struct work_list list = {0};
	struct grove *g = grove_fan(100, 2, 10);

	(void)state;
	config.segment_tokens = 100;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	config = grove_config(PLAN_DEFT);
	config.chunk_tokens = 0;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	config.policy = PLAN_FASTTREE;
	assert_int_equal(plan_make(&config, &g->tree, &list), -EINVAL);
	plan_list_done(&list);
	free(g);
}

static void test_the_check_finds_faults(void **state)
{
	struct plan_config config = grove_config(PLAN_DEFT);
	struct work_list list = {0};
	struct grove *g = grove_fan(100, 3, 10);
	char error[128];

	(void)state;
	grove_plan(g, &config, &list);
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
	uint32_t end = list.pieces[0].row_end;
	list.pieces[0].row_end = list.pieces[0].row_begin;
	assert_int_equal(plan_list_check(&g->tree, &list, error, sizeof(error)), -EINVAL);
	assert_string_equal(error, "piece 0 has bad rows");
	list.pieces[0].row_end = end;
	grove_check(g, &list);
	plan_list_done(&list);
	free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty_cases_are_plans),
		cmocka_unit_test(test_trees_that_break_a_rule_are_refused),
		cmocka_unit_test(test_a_query_may_come_behind_its_node),
		cmocka_unit_test(test_configs_that_make_no_sense_are_refused),
		cmocka_unit_test(test_the_check_finds_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
