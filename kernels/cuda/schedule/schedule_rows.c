/*
 * schedule_rows.c - a list as a schedule's rows see it: where a token is several of these
 * (row_map.h), each of its rows stands as many times, and all intervals of rows are as much longer.
 * See schedule_impl.h.
 *
 * What is spread is a copy, of the list's rows, items, tiles and pieces; where a token is one row
 * there is none, and nothing is done.
 */
#include "schedule_impl.h"

#include <errno.h>
#include <string.h>

static void spread_rows(struct work_row *to, const struct work_list *from, uint32_t n)
{
	for (uint32_t i = 0; i < from->n_rows * n; i++)
		to[i] = from->rows[i / n];
}

static void spread_items(struct work_item *to, const struct work_list *from, uint32_t n)
{
	for (uint32_t i = 0; i < from->n_items; i++) {
		to[i] = from->items[i];
		to[i].row_begin *= n;
		to[i].row_end *= n;
	}
}

static void spread_tiles(struct work_tile *to, const struct work_list *from, uint32_t n)
{
	for (uint32_t i = 0; i < from->n_tiles; i++) {
		to[i] = from->tiles[i];
		to[i].row_begin *= n;
		to[i].row_end *= n;
	}
}

static void spread_pieces(struct work_piece *to, const struct work_list *from, uint32_t n)
{
	for (uint32_t i = 0; i < from->n_pieces; i++) {
		to[i] = from->pieces[i];
		to[i].row_begin *= n;
		to[i].row_end *= n;
	}
}

int rows_spread(struct make *m)
{
	const struct work_list *from = m->want->list;
	struct work_list *to = &m->spread;
	uint32_t n = m->map.n;

	if (n == 1)
		return 0;
	*to = *from;
	to->n_rows *= n;
	to->rows = make_scratch(m, SPREAD_ROWS, (size_t)to->n_rows + 1, sizeof(*to->rows));
	to->items = make_scratch(m, SPREAD_ITEMS, (size_t)to->n_items + 1, sizeof(*to->items));
	to->tiles = make_scratch(m, SPREAD_TILES, (size_t)to->n_tiles + 1, sizeof(*to->tiles));
	to->pieces = make_scratch(m, SPREAD_PIECES, (size_t)to->n_pieces + 1, sizeof(*to->pieces));
	if (!to->rows || !to->items || !to->tiles || !to->pieces)
		return -ENOMEM;
	spread_rows(to->rows, from, n);
	spread_items(to->items, from, n);
	spread_tiles(to->tiles, from, n);
	spread_pieces(to->pieces, from, n);
	m->list = to;
	return 0;
}
