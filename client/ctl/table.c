/*
 * table.c - a table is kept whole before its first line is printed: only then is it known how wide
 * its columns are, and which of them have nothing to say.
 */
#include "table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct table table_new(const struct table_column *columns, size_t n_columns)
{
	struct table t = {.columns = columns, .n_columns = n_columns};

	assert(n_columns <= TABLE_MAX_COLUMNS);
	for (size_t c = 0; c < n_columns; c++)
		t.widths[c] = columns[c].hides ? 0 : (int)strlen(columns[c].title);
	return t;
}

void table_done(struct table *t)
{
	free(t->cells);
	*t = (struct table){0};
}

static int table_grow(struct table *t)
{
	size_t n_room = t->n_room ? 2 * t->n_room : 64;
	struct text *cells = reallocarray(t->cells, n_room, t->n_columns * sizeof(*cells));

	if (!cells)
		return -ENOMEM;
	t->cells = cells;
	t->n_room = n_room;
	return 0;
}

/* A hidden column that has something to say is as wide as its title at least. */
static void widen(struct table *t, size_t c, int width)
{
	int title = (int)strlen(t->columns[c].title);

	if (width > 0 && t->widths[c] < title)
		t->widths[c] = title;
	if (t->widths[c] < width)
		t->widths[c] = width;
}

int table_add(struct table *t, const struct text *cells)
{
	if (t->n_rows == t->n_room && table_grow(t) < 0)
		return -ENOMEM;
	memcpy(t->cells + t->n_rows++ * t->n_columns, cells, t->n_columns * sizeof(*cells));
	for (size_t c = 0; c < t->n_columns; c++)
		widen(t, c, (int)strlen(cells[c].s));
	return 0;
}

static void print_cell(const struct table *t, size_t c, const char *s)
{
	bool is_last = c + 1 == t->n_columns;

	if (t->widths[c] == 0)
		return;
	if (!t->columns[c].is_text)
		printf("%*s", t->widths[c], s);
	else
		printf("%-*s", is_last ? 0 : t->widths[c], s);
	if (!is_last)
		putchar(' ');
}

void table_print_titles(const struct table *t)
{
	for (size_t c = 0; c < t->n_columns; c++)
		print_cell(t, c, t->columns[c].title);
}

void table_print_row(const struct table *t, size_t row)
{
	for (size_t c = 0; c < t->n_columns; c++)
		print_cell(t, c, t->cells[row * t->n_columns + c].s);
}

void table_print(const struct table *t)
{
	table_print_titles(t);
	putchar('\n');
	for (size_t row = 0; row < t->n_rows; row++) {
		table_print_row(t, row);
		putchar('\n');
	}
}
