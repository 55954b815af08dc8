/* table_test.c - columns of coppicectl's tables are as wide as what stands in them. */
#include "client/ctl/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct table_column columns[] = {
	{.title = "pid"},
	{.title = "who", .is_text = true},
	{.title = "where", .hides = true},
	{.title = "what", .is_text = true},
};

/* Prints a table of n rows of four cells, and compares. */
static void assert_prints(const char *const (*rows)[4], size_t n, const char *expected)
{
	TABLE table = table_new(columns, 4);
	int out = dup(STDOUT_FILENO);
	FILE *file = tmpfile();
	char text[512];

	for (size_t i = 0; i < n; i++) {
		struct text cells[4];

		for (size_t c = 0; c < 4; c++)
			strcpy(cells[c].s, rows[i][c]);
		assert_int_equal(table_add(&table, cells), 0);
	}
	assert_true(out >= 0 && file);
	dup2(fileno(file), STDOUT_FILENO);
	table_print(&table);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	rewind(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, expected);
}

static void test_numbers_stand_on_the_right_and_text_on_the_left(void **state)
{
	static const char *const rows[][4] = {{"1", "somebody", "2h", "x"},
					      {"12345", "me", "", "yz"}};
	(void)state;

	assert_prints(rows, 2,
		      "  pid who      where what\n"
		      "    1 somebody    2h x\n"
		      "12345 me             yz\n");
}

static void test_a_column_with_nothing_to_say_hides(void **state)
{
	static const char *const rows[][4] = {{"1", "me", "", "x"}};
	(void)state;

	assert_prints(rows, 1, "pid who what\n  1 me  x\n");
	assert_prints(rows, 0, "pid who what\n");
}

static void test_rows_are_as_many_as_are_added(void **state)
{
	TABLE table = table_new(columns, 4);
	struct text cells[4] = {{"1"}, {"me"}, {""}, {"x"}};
	(void)state;

	for (int i = 0; i < 1000; i++)
		assert_int_equal(table_add(&table, cells), 0);
	assert_int_equal(table.n_rows, 1000);
	assert_string_equal(table.cells[4 * 999 + 1].s, "me");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers_stand_on_the_right_and_text_on_the_left),
		cmocka_unit_test(test_a_column_with_nothing_to_say_hides),
		cmocka_unit_test(test_rows_are_as_many_as_are_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
