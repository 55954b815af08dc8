/*
 * cut.c - a list as one device of several sees it: the pieces of its pages, the items and
 * partials that are left, numbered anew. What no row of an item sees here has no partial.
 */
#include "cut.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct making {
	struct cut *cut;
	const struct work_list *from;
	uint32_t n_devices;
	uint32_t device;
	uint32_t *new_parts; /* [from->n_parts], a partial's number in the cut list, or WORK_NONE */
};

/* Items may share tiles. */
static void count_uses(const struct work_list *list, size_t *ret_tiles, size_t *ret_pieces)
{
	*ret_tiles = *ret_pieces = 0;
	for (uint32_t i = 0; i < list->n_items; i++) {
		const struct work_item *item = &list->items[i];

		*ret_tiles += item->n_tiles;
		for (uint32_t t = 0; t < item->n_tiles; t++)
			*ret_pieces += list->tiles[item->tile + t].n_pieces;
	}
}

static int make_room(struct making *m)
{
	size_t n_tiles, n_pieces;
	struct array *memory = m->cut->memory;
	const struct work_list *from = m->from;
	struct work_list *list = &m->cut->list;
	uint32_t n_merges = from->n_rows ? from->merge_first[from->n_rows] : 0;

	count_uses(from, &n_tiles, &n_pieces);
	*list = (struct work_list){.rows = from->rows,
				   .n_rows = from->n_rows,
				   .bounded = from->bounded};
	list->items = array_room(&memory[CUT_ITEMS], from->n_items, sizeof(*list->items));
	list->tiles = array_room(&memory[CUT_TILES], n_tiles, sizeof(*list->tiles));
	list->pieces = array_room(&memory[CUT_PIECES], n_pieces, sizeof(*list->pieces));
	list->merge_first = array_room(&memory[CUT_MERGE_FIRST], (size_t)from->n_rows + 1,
				       sizeof(*list->merge_first));
	list->merge_parts =
		array_room(&memory[CUT_MERGE_PARTS], n_merges, sizeof(*list->merge_parts));
	m->new_parts = array_room(&memory[CUT_NEW_PARTS], from->n_parts, sizeof(*m->new_parts));
	if (!list->items || !list->tiles || !list->pieces || !list->merge_first ||
	    !list->merge_parts || !m->new_parts)
		return -ENOMEM;
	return 0;
}

/* False where nothing of the tile is here that the item's rows see. */
static bool cut_tile(const struct making *m, const struct work_item *item,
		     const struct work_tile *from)
{
	struct work_list *list = &m->cut->list;
	struct work_tile tile = {.piece = list->n_pieces, .row_begin = UINT32_MAX};

	for (uint32_t i = 0; i < from->n_pieces; i++) {
		const struct work_piece *piece = &m->from->pieces[from->piece + i];

		uint32_t begin = max_u32(item->row_begin, piece->row_begin);
		uint32_t end = min_u32(item->row_end, piece->row_end);

		if (begin >= end || cut_device(piece->page, m->n_devices) != m->device)
			continue;
		list->pieces[list->n_pieces] = *piece;
		list->pieces[list->n_pieces++].page = cut_page(piece->page, m->n_devices);
		list->kv_tokens_read += piece->count;
		tile.n_pieces++;
		tile.row_begin = min_u32(tile.row_begin, begin);
		tile.row_end = max_u32(tile.row_end, end);
	}
	if (tile.n_pieces)
		list->tiles[list->n_tiles++] = tile;
	return tile.n_pieces > 0;
}

/* Partials of the rows that see something of the item here. */
static void number_parts(const struct making *m, const struct work_item *from,
			 const struct work_item *item)
{
	const struct work_list *list = &m->cut->list;
	const struct work_tile *first = &list->tiles[item->tile];
	const struct work_piece *widest = &list->pieces[first->piece], *last;

	last = &list->pieces[list->n_pieces];
	for (const struct work_piece *piece = widest; piece < last; piece++) {
		/* whoever sees this one has seen that one */
		if (!list->bounded && piece != widest && piece->row_begin >= widest->row_begin &&
		    piece->row_end <= widest->row_end && piece->pos >= widest->pos)
			continue;
		for (uint32_t row = max_u32(piece->row_begin, item->row_begin);
		     row < min_u32(piece->row_end, item->row_end); row++) {
			if (work_row_sees_some(&list->rows[row], piece->pos, piece->count))
				m->new_parts[from->part + row - from->row_begin] =
					item->part + row - item->row_begin;
		}
		widest = piece;
	}
}

static void cut_item(const struct making *m, const struct work_item *from)
{
	struct work_list *list = &m->cut->list;
	struct work_item item = {.row_begin = UINT32_MAX,
				 .tile = list->n_tiles,
				 .part = list->n_parts,
				 .mask = WORK_NONE};

	for (uint32_t i = 0; i < from->n_tiles; i++) {
		if (!cut_tile(m, from, &m->from->tiles[from->tile + i]))
			continue;

		const struct work_tile *tile = &list->tiles[list->n_tiles - 1];

		item.n_tiles++;
		item.row_begin = min_u32(item.row_begin, tile->row_begin);
		item.row_end = max_u32(item.row_end, tile->row_end);
	}
	if (item.n_tiles == 0)
		return;
	number_parts(m, from, &item);
	list->items[list->n_items++] = item;
	list->n_parts += item.row_end - item.row_begin;
}

static void cut_merges(const struct making *m)
{
	struct work_list *list = &m->cut->list;
	uint32_t n = 0;

	for (uint32_t row = 0; row < list->n_rows; row++) {
		list->merge_first[row] = n;
		for (uint32_t i = m->from->merge_first[row]; i < m->from->merge_first[row + 1];
		     i++) {
			uint32_t part = m->new_parts[m->from->merge_parts[i]];

			if (part != WORK_NONE)
				list->merge_parts[n++] = part;
		}
	}
	list->merge_first[list->n_rows] = n;
}

int cut_make(struct cut *cut, const struct work_list *list, uint32_t n_devices, uint32_t device)
{
	struct making m = {cut, list, n_devices, device};
	int r = make_room(&m);

	if (r) {
		cut->list = (struct work_list){0};
		return r;
	}
	memset(m.new_parts, 0xff, list->n_parts * sizeof(*m.new_parts));
	for (uint32_t i = 0; i < list->n_items; i++)
		cut_item(&m, &list->items[i]);
	cut_merges(&m);
	return 0;
}

void cut_done(struct cut *cut)
{
	for (uint32_t i = 0; i < CUT_N_MEMORY; i++)
		array_done(&cut->memory[i]);
	*cut = (struct cut){0};
}
