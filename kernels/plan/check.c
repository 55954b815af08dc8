/*
 * The check knows nothing of how plans are made: it counts, row by row, the tokens that the tree
 * lets the row see and those that the list makes it fold, in a table of all rows of all pages.
 */
#include "plan.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_TOKENS_MAX 64u

struct check {
	const struct work_tree *tree;
	const struct work_list *list;
	/* owned, [pages][PAGE_TOKENS_MAX]: seen in the tree less folded in the list */
	int32_t *tokens;
	uint32_t *part_items; /* owned, [n_parts], item that the partial belongs to, plus 1 */
	uint32_t *visits; /* owned, [n_items], row that merged the item last, plus 1 */
	size_t n_tokens;
	char *error;
	size_t error_bytes;
};

__attribute__((format(printf, 2, 3))) static int fail(struct check *check, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(check->error, check->error_bytes, format, args);
	va_end(args);
	return -EINVAL;
}

static bool draft_sees(const struct work_query *query, uint32_t token, uint32_t other)
{
	while (token != other && token != WORK_NONE)
		token = query->parents[token];
	return token == other;
}

/* By the words of work.h, with no use of the row's pos. */
static bool row_sees(const struct work_query *query, uint32_t token, uint32_t pos)
{
	if (query->lows && pos < query->lows[token])
		return false;
	uint32_t draft_pos = query->pos - query->n_before;

	if (!query->parents || pos < draft_pos)
		return pos <= query->pos + token;
	return draft_sees(query, query->n_before + token, pos - draft_pos);
}

static uint64_t count_seen(struct check *check, const struct work_row *row, int32_t step)
{
	const struct work_tree *tree = check->tree;
	const struct work_query *query = &tree->queries[row->query];
	uint64_t n = 0;

	for (uint32_t i = query->node; i != WORK_NONE; i = tree->nodes[i].parent) {
		const struct work_node *node = &tree->nodes[i];
		uint32_t pos = node->pos;

		for (uint32_t s = node->slice; s < node->slice + node->n_slices; s++) {
			const struct work_slice *slice = &tree->slices[s];

			for (uint32_t j = 0; j < slice->count; j++, pos++) {
				if (!row_sees(query, row->token, pos))
					continue;
				check->tokens[slice->page * (size_t)PAGE_TOKENS_MAX + slice->first +
					      j] += step;
				n++;
			}
		}
	}
	return n;
}

/* Takes the tokens that the row folds in the item off the table. Their lowest position and their
 * number. */
static void count_folded(struct check *check, uint32_t row, const struct work_item *item,
			 uint32_t *ret_low, uint64_t *ret_n)
{
	const struct work_list *list = check->list;
	uint64_t n = 0;
	uint32_t low = UINT32_MAX;

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		for (uint32_t p = tile->piece; p < tile->piece + tile->n_pieces; p++) {
			const struct work_piece *piece = &list->pieces[p];

			if (row < piece->row_begin || row >= piece->row_end)
				continue;
			for (uint32_t j = 0; j < piece->count; j++) {
				if (!work_row_sees(&list->rows[row], piece->pos + j))
					continue;
				if (piece->pos + j < low)
					low = piece->pos + j;
				check->tokens[piece->page * (size_t)PAGE_TOKENS_MAX + piece->first +
					      j]--;
				n++;
			}
		}
	}
	*ret_low = low;
	*ret_n = n;
}

static int check_row_merges(struct check *check, uint32_t row, uint64_t *ret_n)
{
	const struct work_list *list = check->list;
	uint32_t low, last_low = 0;
	uint64_t n;

	for (uint32_t i = list->merge_first[row]; i < list->merge_first[row + 1]; i++) {
		uint32_t part = list->merge_parts[i], index;
		const struct work_item *item;

		if (part >= list->n_parts || !check->part_items[part])
			return fail(check, "row %u merges partial %u, which no item makes", row,
				    part);
		index = check->part_items[part] - 1;
		item = &list->items[index];
		if (part - item->part != row - item->row_begin)
			return fail(check, "row %u merges another row's partial %u", row, part);
		if (check->visits[index] == row + 1)
			return fail(check, "row %u merges item %u twice", row, index);
		check->visits[index] = row + 1;
		count_folded(check, row, item, &low, &n);
		if (!n)
			return fail(check, "row %u merges item %u, where it sees nothing", row,
				    index);
		if (i > list->merge_first[row] && low <= last_low)
			return fail(check, "row %u merges item %u out of order", row, index);
		last_low = low;
		*ret_n += n;
	}
	return 0;
}

/* Items that hold something for the row but are not merged would leave tokens in the table. */
static int check_row(struct check *check, uint32_t row)
{
	const struct work_list *list = check->list;
	uint64_t n_seen = count_seen(check, &list->rows[row], 1), n_folded = 0;
	int r;

	if (list->merge_first[row] > list->merge_first[row + 1])
		return fail(check, "merge list of row %u runs backwards", row);
	r = check_row_merges(check, row, &n_folded);
	if (r)
		return r;
	for (size_t i = 0; i < check->n_tokens; i++)
		if (check->tokens[i])
			return fail(check, "row %u %s page %zu row %zu", row,
				    check->tokens[i] > 0 ? "lacks" : "folds, unseen or twice,",
				    i / PAGE_TOKENS_MAX, i % PAGE_TOKENS_MAX);
	return n_seen == n_folded ? 0
				  : fail(check, "row %u sees %llu tokens and folds %llu", row,
					 (unsigned long long)n_seen, (unsigned long long)n_folded);
}

static int check_order_of_rows(struct check *check)
{
	const struct work_list *list = check->list;
	const struct work_tree *tree = check->tree;
	uint64_t n_rows = 0;

	for (uint32_t i = 0; i < tree->n_queries; i++)
		n_rows += tree->queries[i].n_rows;
	if (list->n_rows != n_rows)
		return fail(check, "%u rows for %llu of the queries", list->n_rows,
			    (unsigned long long)n_rows);
	for (uint32_t r = 0; r < list->n_rows; r++) {
		const struct work_row *row = &list->rows[r];

		if (row->query >= tree->n_queries || row->token >= tree->queries[row->query].n_rows)
			return fail(check, "row %u is no row of a query", r);
		for (uint32_t s = r + 1; s < list->n_rows; s++) {
			const struct work_row *next = &list->rows[s];

			if (next->query == row->query && next->token == row->token)
				return fail(check, "rows %u and %u are the same", r, s);
			if (next->query == row->query && next[-1].query != row->query)
				return fail(check, "rows of query %u are apart", row->query);
		}
	}
	return 0;
}

static int check_tile(struct check *check, uint32_t t)
{
	const struct work_list *list = check->list;
	const struct work_tile *tile = &list->tiles[t];
	uint32_t begin = UINT32_MAX, end = 0, key = 0;

	if (!tile->n_pieces || tile->piece + (uint64_t)tile->n_pieces > list->n_pieces)
		return fail(check, "tile %u has no pieces or foreign ones", t);
	for (uint32_t p = tile->piece; p < tile->piece + tile->n_pieces; p++) {
		const struct work_piece *piece = &list->pieces[p];

		if (!piece->count || piece->key < key ||
		    piece->key + (uint64_t)piece->count > WORK_TILE_TOKENS)
			return fail(check, "piece %u lies outside its tile or on another", p);
		if (piece->first + piece->count > PAGE_TOKENS_MAX ||
		    piece->page * (uint64_t)PAGE_TOKENS_MAX >= check->n_tokens)
			return fail(check, "piece %u names a row of no page", p);
		if (piece->row_begin >= piece->row_end || piece->row_end > list->n_rows)
			return fail(check, "piece %u has bad rows", p);
		key = piece->key + piece->count;
		begin = min_u32(piece->row_begin, begin);
		end = max_u32(piece->row_end, end);
	}
	if (begin != tile->row_begin || end != tile->row_end)
		return fail(check, "rows of tile %u are not the union of its pieces'", t);
	return 0;
}

static int check_mask(struct check *check, const struct work_item *item)
{
	const struct work_list *list = check->list;
	uint32_t n_rows = item->row_end - item->row_begin;
	uint64_t word = item->mask, n_words = ceil_div(n_rows, 64);

	for (uint32_t t = item->tile; t < item->tile + item->n_tiles; t++) {
		const struct work_tile *tile = &list->tiles[t];

		for (uint32_t p = tile->piece; p < tile->piece + tile->n_pieces; p++) {
			const struct work_piece *piece = &list->pieces[p];

			if (word + n_words > list->n_masks)
				return fail(check, "mask of piece %u out of bounds", p);
			for (uint64_t i = 0; i < n_words * 64; i++) {
				uint64_t row = item->row_begin + i;
				bool in = row >= piece->row_begin && row < piece->row_end;

				if ((list->masks[word + i / 64] >> i % 64 & 1) != in)
					return fail(check, "mask of piece %u differs at row %llu",
						    p, (unsigned long long)row);
			}
			word += n_words;
		}
	}
	return 0;
}

static int claim_parts(struct check *check, uint32_t index)
{
	const struct work_item *item = &check->list->items[index];

	if (item->row_begin >= item->row_end || item->row_end > check->list->n_rows)
		return fail(check, "item %u has bad rows", index);
	if (item->part + (uint64_t)(item->row_end - item->row_begin) > check->list->n_parts)
		return fail(check, "partials of item %u out of bounds", index);
	for (uint32_t i = 0; i < item->row_end - item->row_begin; i++) {
		uint32_t *owner = &check->part_items[item->part + i];

		if (*owner)
			return fail(check, "items %u and %u share a partial", *owner - 1, index);
		*owner = index + 1;
	}
	return 0;
}

/* Tiles and pieces stand in the order of their items, none left over. */
static int check_items(struct check *check)
{
	const struct work_list *list = check->list;
	uint32_t n_tiles = 0, n_pieces = 0;
	uint64_t n_tokens = 0;
	int r = 0;

	for (uint32_t i = 0; i < list->n_items && !r; i++) {
		const struct work_item *item = &list->items[i];

		if (!item->n_tiles || item->tile != n_tiles ||
		    item->n_tiles > list->n_tiles - n_tiles)
			return fail(check, "tiles of item %u do not follow the last", i);
		n_tiles += item->n_tiles;
		r = claim_parts(check, i);
		for (uint32_t t = item->tile; t < n_tiles && !r; t++) {
			const struct work_tile *tile = &list->tiles[t];

			if (tile->piece != n_pieces)
				return fail(check, "pieces of tile %u do not follow the last", t);
			n_pieces += tile->n_pieces;
			r = check_tile(check, t);
			if (!r &&
			    (tile->row_begin < item->row_begin || tile->row_end > item->row_end))
				return fail(check, "tile %u has rows outside item %u", t, i);
		}
		if (!r && item->mask != WORK_NONE)
			r = check_mask(check, item);
	}
	if (r)
		return r;
	if (n_tiles != list->n_tiles || n_pieces != list->n_pieces)
		return fail(check, "tiles or pieces that no item has");
	for (uint32_t p = 0; p < list->n_pieces; p++)
		n_tokens += list->pieces[p].count;
	return n_tokens == list->kv_tokens_read ? 0 : fail(check, "kv_tokens_read is wrong");
}

/* From the first position that some row sees to the last. */
static uint64_t tokens_alone(const struct work_tree *tree, const struct work_query *query)
{
	uint32_t start = 0, end = query->pos + query->n_rows, i = query->node, low = UINT32_MAX;

	if (i == WORK_NONE)
		return 0;
	if (end > tree->nodes[i].pos + tree->nodes[i].n_tokens)
		end = tree->nodes[i].pos + tree->nodes[i].n_tokens;
	for (; i != WORK_NONE; i = tree->nodes[i].parent)
		start = tree->nodes[i].pos;
	for (i = 0; query->lows && i < query->n_rows; i++)
		low = min_u32(query->lows[i], low);
	if (query->lows && low > start)
		start = low;
	return end > start ? end - start : 0;
}

static int check_all(struct check *check)
{
	const struct work_tree *tree = check->tree;
	const struct work_list *list = check->list;
	uint64_t alone = 0;
	int r;

	r = check_order_of_rows(check);
	if (!r)
		r = check_items(check);
	for (uint32_t row = 0; row < list->n_rows && !r; row++)
		r = check_row(check, row);
	if (r)
		return r;
	for (uint32_t i = 0; i < tree->n_queries; i++)
		alone += tokens_alone(tree, &tree->queries[i]);
	return alone == list->kv_tokens_alone ? 0 : fail(check, "kv_tokens_alone is wrong");
}

int plan_list_check(const struct work_tree *tree, const struct work_list *list, char *error,
		    size_t error_bytes)
{
	struct check check = {.tree = tree,
			      .list = list,
			      .error = error,
			      .error_bytes = error_bytes};
	uint32_t n_pages = 0;
	int r = -ENOMEM;

	for (uint32_t i = 0; i < tree->n_slices; i++)
		if (tree->slices[i].page >= n_pages)
			n_pages = tree->slices[i].page + 1;
	check.n_tokens = n_pages * (size_t)PAGE_TOKENS_MAX;
	check.tokens = calloc(check.n_tokens + 1, sizeof(*check.tokens));
	check.part_items = calloc((size_t)list->n_parts + 1, sizeof(*check.part_items));
	check.visits = calloc((size_t)list->n_items + 1, sizeof(*check.visits));
	if (check.tokens && check.part_items && check.visits)
		r = check_all(&check);
	free(check.tokens);
	free(check.part_items);
	free(check.visits);
	return r;
}
