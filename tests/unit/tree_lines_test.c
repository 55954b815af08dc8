/*
 * tree_lines_test.c - where the nodes of the tree stand in coppicectl's drawing: chains of nodes
 * with one child are one line, what is too deep is counted.
 */
#include "client/ctl/tree_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_NODES 16

struct fixture {
	Coppice__TreeNode nodes[MAX_NODES];
	Coppice__TreeNode *pointers[MAX_NODES];
	struct tree_line *lines; /* owned */
	size_t n_lines;
};

/* Nodes by their depths, depth first: "0121" is a root with two children, the first of which has
 * one. */
static void make_lines(struct fixture *f, const char *depths, uint32_t max_level)
{
	size_t n = strlen(depths);

	assert_true(n <= MAX_NODES);
	for (size_t i = 0; i < n; i++) {
		f->nodes[i].depth = (uint32_t)(depths[i] - '0');
		f->pointers[i] = &f->nodes[i];
	}
	free(f->lines);
	assert_int_equal(tree_lines_new(f->pointers, n, max_level, &f->lines, &f->n_lines), 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	for (size_t i = 0; i < MAX_NODES; i++)
		f->nodes[i] = (Coppice__TreeNode)COPPICE__TREE_NODE__INIT;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	free(f->lines);
	free(f);
	return 0;
}

static void assert_line(const struct fixture *f, size_t i, size_t first, size_t n, uint32_t level)
{
	assert_true(i < f->n_lines);
	assert_int_equal(f->lines[i].first, first);
	assert_int_equal(f->lines[i].n, n);
	assert_int_equal(f->lines[i].level, level);
}

static void nothing_has_no_lines(void **state)
{
	struct fixture *f = *state;

	make_lines(f, "", UINT32_MAX);
	assert_int_equal(f->n_lines, 0);
}

static void a_chain_is_one_line(void **state)
{
	struct fixture *f = *state;

	make_lines(f, "01234", UINT32_MAX);
	assert_int_equal(f->n_lines, 2);
	assert_line(f, 0, 0, 1, 0);
	assert_line(f, 1, 1, 4, 1);
	assert_int_equal(f->lines[1].depth, 4);
}

static void siblings_are_lines_of_one_level(void **state)
{
	struct fixture *f = *state;

	/* 1 is chained to 2; below it 3 with its chain 4, and 5. */
	make_lines(f, "012343", UINT32_MAX);
	assert_int_equal(f->n_lines, 4);
	assert_line(f, 1, 1, 2, 1);
	assert_line(f, 2, 3, 2, 2);
	assert_line(f, 3, 5, 1, 2);
	assert_true(f->lines[2].younger);
	assert_false(f->lines[3].younger);
}

static void a_chain_does_not_cross_to_another_model(void **state)
{
	struct fixture *f = *state;

	make_lines(f, "012012", UINT32_MAX);
	assert_int_equal(f->n_lines, 4);
	assert_line(f, 2, 3, 1, 0);
	assert_line(f, 3, 4, 2, 1);
}

static void what_is_too_deep_is_counted(void **state)
{
	struct fixture *f = *state;

	make_lines(f, "0122312", 1);
	assert_int_equal(f->n_lines, 3);
	assert_line(f, 1, 1, 1, 1);
	assert_int_equal(f->lines[1].n_below, 2);
	/* 5 has one child, 6: a chain, of which nothing is below. */
	assert_line(f, 2, 5, 2, 1);
	assert_int_equal(f->lines[2].n_below, 0);
	make_lines(f, "0122312", 0);
	assert_int_equal(f->n_lines, 1);
	assert_int_equal(f->lines[0].n_below, 4);
}

static void one_id_that_is_no_text_tells_of_its_whole_model(void **state)
{
	static uint32_t text[] = {'H', 'i'}, number[] = {'H', 7};
	struct fixture *f = *state;

	for (size_t i = 1; i < 6; i++) {
		f->nodes[i].head = i == 2 ? number : text;
		f->nodes[i].n_head = 2;
	}
	f->nodes[3].n_head = 0;
	make_lines(f, "011011", UINT32_MAX);
	assert_int_equal(f->n_lines, 6);
	for (size_t i = 0; i < 3; i++)
		assert_false(f->lines[i].is_text);
	for (size_t i = 3; i < 6; i++)
		assert_true(f->lines[i].is_text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_has_no_lines),
		TEST(a_chain_is_one_line),
		TEST(siblings_are_lines_of_one_level),
		TEST(a_chain_does_not_cross_to_another_model),
		TEST(what_is_too_deep_is_counted),
		TEST(one_id_that_is_no_text_tells_of_its_whole_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
