/*
 * table.h - rows and columns, as wide as what stands in them.
 */
#ifndef CTL_TABLE_H
#define CTL_TABLE_H

#include "proto/must_check.h"
#include "text.h"

#include <stdbool.h>

#define TABLE_MAX_COLUMNS 12

struct table_column {
	const char *title;
	bool is_text; /* stands on the left; a number on the right */
	bool hides; /* where no row has anything in it */
};

struct table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns, n_rows, n_room;
	struct text *cells; /* owned, [n_room][n_columns] */
	int widths[TABLE_MAX_COLUMNS]; /* 0: hidden */
};

/* An empty one; n_columns of TABLE_MAX_COLUMNS at most. */
struct table table_new(const struct table_column *columns, size_t n_columns);
void table_done(struct table *t);

/* Copies n_columns cells. 0 or -ENOMEM. */
MUST_CHECK int table_add(struct table *t, const struct text *cells);

static inline void table_donep(struct table *t)
{
	table_done(t);
}
#define TABLE __attribute__((cleanup(table_donep))) struct table

/* To standard output: all of it; or in parts, without a line's end, so that the caller goes on. */
void table_print(const struct table *t);
void table_print_titles(const struct table *t);
void table_print_row(const struct table *t, size_t row);

#endif
