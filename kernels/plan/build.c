/*
 * build.c - the list under construction: pieces gather in tiles, tiles in items, and intervals of
 * rows, partials and merge lists follow from them. A row has a partial of an item only if it sees
 * something of it. Memory that runs out is remembered, and said once, by build_finish.
 */
#include "build.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room in one of the list's own arrays, whose pointer follows. */
#define BUILD_GROW(build, which, field, n) \
	build_grow((build), (which), (void **)&(build)->list->field, (n), \
		   sizeof(*(build)->list->field))

static bool build_grow(struct build *build, enum plan_memory which, void **field, size_t n,
		       size_t size)
{
	void *data = array_room(&build->scratch->memory[which], n, size);

	if (!data) {
		build->error = -ENOMEM;
		return false;
	}
	*field = data;
	return true;
}

void *build_room(struct build *build, unsigned int which, size_t n, size_t size)
{
	return array_room(&build->scratch->memory[PLAN_POLICY + which], n, size);
}

uint32_t build_seen_tokens(const struct build *build, uint32_t node)
{
	uint32_t pos = build->tree->nodes[node].pos, end = build->order->nodes[node].seen_end;

	return end > pos ? end - pos : 0;
}

/* Parents have lower indices and begin no later. */
static int compare_ranked(const void *left, const void *right)
{
	const struct build_ranked *a = left, *b = right;

	if (a->row_begin != b->row_begin)
		return a->row_begin < b->row_begin ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

int build_depth_first(struct build *build, const struct build_ranked **ret, uint32_t *ret_n)
{
	uint32_t n_nodes = build->tree->n_nodes, n = 0;
	struct build_ranked *ranked =
		array_room(&build->scratch->memory[PLAN_RANKED], n_nodes, sizeof(*ranked));

	if (!ranked)
		return -ENOMEM;
	for (uint32_t i = 0; i < n_nodes; i++) {
		if (build_seen_tokens(build, i))
			ranked[n++] = (struct build_ranked){build->order->nodes[i].row_begin, i};
	}
	qsort(ranked, n, sizeof(*ranked), compare_ranked);
	*ret = ranked;
	*ret_n = n;
	return 0;
}

static struct work_item *last_item(const struct build *build)
{
	return &build->list->items[build->list->n_items - 1];
}

static struct work_tile *last_tile(const struct build *build)
{
	return &build->list->tiles[build->list->n_tiles - 1];
}

void build_empty(struct work_list *list)
{
	list->n_rows = list->n_items = list->n_tiles = list->n_pieces = list->n_masks = 0;
	list->n_parts = 0;
	list->kv_tokens_read = list->kv_tokens_alone = 0;
}

int build_begin(struct build *build, const bool *last)
{
	struct work_list *list = build->list;

	list->n_rows = build->order->n_rows;
	list->bounded = build->order->bounded;
	if (!BUILD_GROW(build, PLAN_ROWS, rows, list->n_rows))
		return -ENOMEM;
	build->stamps = array_room(&build->scratch->memory[PLAN_STAMPS], list->n_rows,
				   sizeof(*build->stamps));
	if (!build->stamps)
		return -ENOMEM;
	memset(build->stamps, 0, list->n_rows * sizeof(*build->stamps));
	order_place(build->order, build->tree, last, list->rows);
	return 0;
}

void build_item(struct build *build)
{
	struct work_list *list = build->list;

	build->n_keys = 0;
	build->widest = (struct work_piece){0};
	if (BUILD_GROW(build, PLAN_ITEMS, items, list->n_items + 1))
		list->items[list->n_items++] = (struct work_item){.row_begin = UINT32_MAX,
								  .tile = list->n_tiles,
								  .mask = WORK_NONE};
}

void build_tile_end(struct build *build)
{
	struct work_item *item;
	struct work_tile *tile;

	if (!build->n_keys || build->error)
		return;
	item = last_item(build);
	tile = last_tile(build);
	tile->n_pieces = build->list->n_pieces - tile->piece;
	if (tile->row_begin < item->row_begin)
		item->row_begin = tile->row_begin;
	if (tile->row_end > item->row_end)
		item->row_end = tile->row_end;
	item->n_tiles++;
	build->n_keys = 0;
}

void build_item_end(struct build *build)
{
	struct work_list *list = build->list;
	struct work_item *item;

	build_tile_end(build);
	if (build->error)
		return;
	item = last_item(build);
	if (!item->n_tiles) {
		list->n_items--;
		return;
	}
	item->part = list->n_parts;
	list->n_parts += item->row_end - item->row_begin;
}

/* Pieces come parents first and in ascending position, so most lie within the widest: their rows
 * are known. */
static void note_rows(struct build *build, const struct work_piece *piece)
{
	const struct work_row *rows = build->list->rows;
	const struct work_piece *widest = &build->widest;
	struct build_seen *seen;
	uint32_t item = build->list->n_items - 1;

	if (!build->list->bounded && piece->row_begin >= widest->row_begin &&
	    piece->row_end <= widest->row_end && piece->pos >= widest->pos)
		return;
	build->widest = *piece;
	seen = array_room(&build->scratch->memory[PLAN_SEEN],
			  (size_t)build->n_seen + piece->row_end - piece->row_begin, sizeof(*seen));
	if (!seen) {
		build->error = -ENOMEM;
		return;
	}
	for (uint32_t row = piece->row_begin; row < piece->row_end; row++) {
		if (build->stamps[row] == item + 1 ||
		    !work_row_sees_some(&rows[row], piece->pos, piece->count))
			continue;
		build->stamps[row] = item + 1;
		seen[build->n_seen++] = (struct build_seen){row, item};
	}
}

static void open_tile(struct build *build)
{
	struct work_list *list = build->list;

	if (BUILD_GROW(build, PLAN_TILES, tiles, list->n_tiles + 1))
		list->tiles[list->n_tiles++] =
			(struct work_tile){.piece = list->n_pieces, .row_begin = UINT32_MAX};
}

static void add_piece(struct build *build, const struct work_piece *piece)
{
	struct work_list *list = build->list;
	struct work_tile *tile;

	if (build->error)
		return;
	if (!build->n_keys)
		open_tile(build);
	if (build->error || !BUILD_GROW(build, PLAN_PIECES, pieces, list->n_pieces + 1))
		return;
	list->pieces[list->n_pieces++] = *piece;
	list->kv_tokens_read += piece->count;
	build->n_keys = piece->key + piece->count;
	tile = last_tile(build);
	if (piece->row_begin < tile->row_begin)
		tile->row_begin = piece->row_begin;
	if (piece->row_end > tile->row_end)
		tile->row_end = piece->row_end;
	note_rows(build, piece);
}

/* Without the rows at either end to which all of it is too old. */
static struct work_piece narrow(const struct build *build, const struct work_piece *piece)
{
	const struct work_row *rows = build->list->rows;
	struct work_piece ret = *piece;
	uint64_t end = (uint64_t)piece->pos + piece->count;

	while (ret.row_begin < ret.row_end && rows[ret.row_begin].low >= end)
		ret.row_begin++;
	while (ret.row_begin < ret.row_end && rows[ret.row_end - 1].low >= end)
		ret.row_end--;
	return ret;
}

void build_piece(struct build *build, const struct work_piece *piece)
{
	struct work_piece narrowed;

	if (build->list->bounded) {
		narrowed = narrow(build, piece);
		piece = &narrowed;
	}
	if (piece->row_begin < piece->row_end)
		add_piece(build, piece);
}

void build_reader_init(struct build_reader *reader, const struct build *build, uint32_t index,
		       uint32_t pos)
{
	const struct work_node *node = &build->tree->nodes[index];
	uint32_t draft = build->order->nodes[index].draft;
	uint32_t left = node->pos + node->n_tokens - pos;

	*reader = (struct build_reader){.node = index, .pos = pos, .draft_pos = UINT32_MAX};
	reader->slice = &build->tree->slices[node->slice];
	if (draft != WORK_NONE) {
		const struct work_query *query = &build->tree->queries[draft];

		reader->draft_pos = query->pos - query->n_before;
		reader->draft = &build->order->drafts[build->order->nodes[index].first_draft];
	}
	if (pos == node->pos)
		return;
	/* from the end: whoever begins inside a node nearly always begins near its end */
	reader->slice += node->n_slices - 1;
	while (reader->slice->count < left)
		left -= reader->slice--->count;
	reader->used = reader->slice->count - left;
}

void build_reader_take(struct build_reader *reader, uint32_t n_tokens, struct work_piece *ret)
{
	const struct work_slice *slice = reader->slice;
	uint32_t count = slice->count - reader->used;

	if (count > n_tokens)
		count = n_tokens;
	*ret = (struct work_piece){.page = slice->page, .pos = reader->pos, .row_end = UINT32_MAX};
	ret->first = slice->first + reader->used;
	if (reader->pos >= reader->draft_pos) {
		ret->row_begin = reader->draft[reader->pos - reader->draft_pos].begin;
		ret->row_end = reader->draft[reader->pos - reader->draft_pos].end;
		count = 1;
	} else if (count > reader->draft_pos - reader->pos) {
		count = reader->draft_pos - reader->pos;
	}
	ret->count = count;
	reader->pos += count;
	reader->used += count;
	if (reader->used == slice->count) {
		reader->slice++;
		reader->used = 0;
	}
}

/* Chunks of a node follow each other, row tiles repeat a chunk: neither should count slices
 * again. */
static void seek(struct build *build, uint32_t node, uint32_t pos, struct build_reader *reader)
{
	if (build->ended.slice && build->ended.node == node && build->ended.pos == pos)
		*reader = build->ended;
	else if (build->begun.slice && build->begun.node == node && build->begun.pos == pos)
		*reader = build->begun;
	else
		build_reader_init(reader, build, node, pos);
	build->begun = *reader;
}

void build_tokens(struct build *build, uint32_t node, uint32_t from, uint32_t to,
		  struct order_rows rows)
{
	const struct work_row *row = build->list->rows;
	struct build_reader reader;
	struct work_piece piece;

	if (from >= to)
		return;
	seek(build, node, from, &reader);
	while (reader.pos < to) {
		uint32_t room = WORK_TILE_TOKENS - build->n_keys;

		build_reader_take(&reader, min_u32(room, to - reader.pos), &piece);
		while (rows.begin < rows.end && row[rows.begin].pos < piece.pos)
			rows.begin++;
		piece.key = build->tiles_by_pos ? piece.pos % WORK_TILE_TOKENS : build->n_keys;
		if (piece.row_begin < rows.begin)
			piece.row_begin = rows.begin;
		if (piece.row_end > rows.end)
			piece.row_end = rows.end;
		if (piece.row_begin < piece.row_end)
			build_piece(build, &piece);
		if (build->n_keys == WORK_TILE_TOKENS)
			build_tile_end(build);
	}
	build->ended = reader;
}

/* In order of items, which is ascending position for every row. */
static void fill_merges(struct work_list *list, const struct build_seen *seen, uint32_t n_seen)
{
	for (uint32_t i = 0; i < n_seen; i++)
		list->merge_first[seen[i].row + 1]++;
	for (uint32_t row = 0; row < list->n_rows; row++)
		list->merge_first[row + 1] += list->merge_first[row];
	for (uint32_t i = n_seen; i-- > 0;) {
		const struct work_item *item = &list->items[seen[i].item];
		uint32_t row = seen[i].row;

		list->merge_parts[--list->merge_first[row + 1]] =
			item->part + (row - item->row_begin);
	}
	/* each entry has run down from its end to its beginning, one place too far to the right */
	for (uint32_t row = 0; row < list->n_rows; row++)
		list->merge_first[row] = list->merge_first[row + 1];
	list->merge_first[list->n_rows] = n_seen;
}

static uint32_t tokens_alone(const struct order_span *span)
{
	uint32_t begin = max_u32(span->low, span->start);

	return span->end > begin ? span->end - begin : 0;
}

int build_finish(struct build *build)
{
	struct work_list *list = build->list;

	if (build->error)
		return build->error;
	if (!BUILD_GROW(build, PLAN_MERGE_FIRST, merge_first, (size_t)list->n_rows + 1) ||
	    !BUILD_GROW(build, PLAN_MERGE_PARTS, merge_parts, build->n_seen))
		return -ENOMEM;
	memset(list->merge_first, 0, ((size_t)list->n_rows + 1) * sizeof(*list->merge_first));
	fill_merges(list, build->scratch->memory[PLAN_SEEN].data, build->n_seen);
	for (uint32_t i = 0; i < build->tree->n_queries; i++)
		list->kv_tokens_alone += tokens_alone(&build->order->spans[i]);
	return 0;
}
