/*
 * invariant.c - plans by which a row's bits do not depend on its company: tiles are cut at
 * absolute multiples of 64 tokens and partials at absolute segments, so that what a row folds, and
 * in which order, follows from its path alone. Items are cut between rows, never within a tile.
 */
#include "invariant.h"
#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define BLOCK WORK_TILE_TOKENS
/* Reading a token costs about what the arithmetic of so many rows and heads costs. */
#define READ_ROWS 4.0
#define SLACK 1.25 /* an item may cost so much more than its share where a better border is near */
#define ITEMS_PER_UNIT 2.0 /* items that each unit should find, to even out their sizes */

enum memory { BLOCKS, PIECES, SHARES, STRIPS, SORTED, SEGMENTS, PARTS, LIVE };

/* Blocks [block, block_end) that the spans of rows [row_begin, row_end) have in common. */
struct strip {
	uint32_t span; /* the first of them */
	uint32_t row_begin, row_end;
	uint32_t block, block_end;
	uint32_t raw; /* index of its first block in inv->blocks */
};

struct invariant {
	struct build *build;
	bool alone; /* none: nothing is shared */
	uint32_t segment_blocks;
	uint32_t *shares; /* [n_queries], end of what a span has in common with the one before it */
	/* what each span adds: pieces whose rows are not known yet, a block after the other */
	uint32_t *blocks; /* first piece of each block, and the end */
	struct work_piece *pieces;
	uint32_t n_blocks, n_pieces;
	struct strip *strips; /* closed ones from the front, as they close; then depth first */
	struct strip *open; /* stack; blocks ascend */
	uint32_t n_strips, n_open;
	uint32_t *segments; /* first part of each segment, and the end */
	uint32_t *parts; /* strips that reach into a segment, depth first */
	uint32_t first_segment, n_segments;
	uint32_t *live; /* strips of the item being made */
	uint32_t n_live;
	double item_cost; /* an item that costs more is cut */
};

/* One node's tokens [from, to) of a path that is read from first on, cut at blocks. */
static int read_node(struct invariant *inv, uint32_t node, uint32_t first, uint32_t from,
		     uint32_t to)
{
	struct build_reader reader;

	build_reader_init(&reader, inv->build, node, from);
	while (reader.pos < to) {
		uint32_t n = min_u32(BLOCK - reader.pos % BLOCK, to - reader.pos);
		struct work_piece *piece;

		inv->pieces = build_room(inv->build, PIECES, (size_t)inv->n_pieces + 1,
					 sizeof(*inv->pieces));
		if (!inv->pieces)
			return -ENOMEM;
		piece = &inv->pieces[inv->n_pieces];
		build_reader_take(&reader, n, piece);
		piece->key = piece->pos % BLOCK;
		if (!piece->key || piece->pos == first)
			inv->blocks[inv->n_blocks++] = inv->n_pieces;
		inv->n_pieces++;
	}
	return 0;
}

/* The current path's tokens [first, end). */
static int read_path(struct invariant *inv, uint32_t first, uint32_t end)
{
	const struct order *order = inv->build->order;
	const struct work_node *nodes = inv->build->tree->nodes;
	uint32_t n = order->n_path;
	int r = 0;

	inv->blocks =
		build_room(inv->build, BLOCKS, (size_t)inv->n_blocks + (end - first) / BLOCK + 3,
			   sizeof(*inv->blocks));
	if (!inv->blocks)
		return -ENOMEM;
	while (n && nodes[order->path[n - 1]].pos > first)
		n--;
	for (n -= n > 0; n < order->n_path && !r; n++) {
		const struct work_node *node = &nodes[order->path[n]];

		if (node->pos >= end)
			break;
		r = read_node(inv, order->path[n], first, max_u32(first, node->pos),
			      min_u32(end, node->pos + node->n_tokens));
	}
	inv->blocks[inv->n_blocks] = inv->n_pieces;
	return r;
}

/* The open strips from block on end before row: the rest has other company. */
static void close_strips(struct invariant *inv, uint32_t block, uint32_t row)
{
	while (inv->n_open) {
		struct strip *top = &inv->open[inv->n_open - 1];
		struct strip *closed = &inv->strips[inv->n_strips];

		if (top->block_end <= block)
			return;
		inv->n_strips++;
		*closed = *top;
		closed->row_end = row;
		if (top->block >= block) {
			inv->n_open--;
			continue;
		}
		closed->block = block;
		closed->raw += block - top->block;
		top->block_end = block;
	}
}

/* Opens a strip of what the span does not share with those before it. */
static int open_span(struct invariant *inv, uint32_t index)
{
	const struct order_span *span = &inv->build->order->spans[index];
	uint32_t shared = inv->shares[index] / BLOCK;
	uint32_t block = max_u32(shared, span->start / BLOCK), end = ceil_div(span->end, BLOCK);

	close_strips(inv, shared, span->row_begin);
	if (span->start == span->end || block >= end)
		return 0;
	inv->open[inv->n_open++] = (struct strip){.span = index,
						  .row_begin = span->row_begin,
						  .block = block,
						  .block_end = end,
						  .raw = inv->n_blocks};
	return read_path(inv, max_u32(block * BLOCK, span->start), span->end);
}

/* Each span opens one strip at most and cuts one in two at most. */
static int make_strips(struct invariant *inv)
{
	const struct work_tree *tree = inv->build->tree;
	struct order *order = inv->build->order;
	uint32_t n = tree->n_queries;
	int r;

	inv->shares = build_room(inv->build, SHARES, n, sizeof(*inv->shares));
	inv->strips = build_room(inv->build, STRIPS, 3 * (size_t)n, sizeof(*inv->strips));
	if (!inv->shares || !inv->strips)
		return -ENOMEM;
	inv->open = inv->strips + 2 * (size_t)n;
	for (uint32_t i = 0; i < n; i++) {
		const struct order_span *span = &order->spans[i];
		uint32_t n_kept = order_step(order, tree, span);

		inv->shares[i] = 0;
		if (n_kept && !inv->alone) {
			const struct work_node *node = &tree->nodes[order->path[n_kept - 1]];

			inv->shares[i] = min_u32(node->pos + node->n_tokens,
						 min_u32(span->end, span[-1].end));
		}
		r = open_span(inv, i);
		if (r)
			return r;
	}
	close_strips(inv, 0, order->n_rows);
	return 0;
}

/* Depth first is by opening span, then by block; a span's strips have closed in descending
 * order. */
static int sort_strips(struct invariant *inv)
{
	uint32_t n = inv->n_strips, n_queries = inv->build->tree->n_queries;
	struct strip *sorted = build_room(inv->build, SORTED, n, sizeof(*sorted));
	uint32_t *end = build_room(inv->build, SEGMENTS, (size_t)n_queries + 1, sizeof(*end));

	if (!sorted || !end)
		return -ENOMEM;
	memset(end, 0, n_queries * sizeof(*end));
	for (uint32_t i = 0; i < n; i++)
		end[inv->strips[i].span]++;
	for (uint32_t i = 1; i < n_queries; i++)
		end[i] += end[i - 1];
	for (uint32_t i = 0; i < n; i++)
		sorted[--end[inv->strips[i].span]] = inv->strips[i];
	inv->strips = sorted;
	return 0;
}

static uint32_t strip_first_segment(const struct invariant *inv, const struct strip *strip)
{
	return strip->block / inv->segment_blocks - inv->first_segment;
}

static uint32_t strip_last_segment(const struct invariant *inv, const struct strip *strip)
{
	return (strip->block_end - 1) / inv->segment_blocks - inv->first_segment;
}

static void bound_segments(struct invariant *inv)
{
	uint32_t first = UINT32_MAX, last = 0;

	for (uint32_t i = 0; i < inv->n_strips; i++) {
		first = min_u32(first, inv->strips[i].block / inv->segment_blocks);
		last = max_u32(last, (inv->strips[i].block_end - 1) / inv->segment_blocks);
	}
	inv->first_segment = first;
	inv->n_segments = inv->n_strips ? last - first + 1 : 0;
}

/* Lists the strips of each segment, by counting. */
static int make_segments(struct invariant *inv)
{
	uint32_t *at, n_parts = 0;

	bound_segments(inv);
	at = build_room(inv->build, SEGMENTS, (size_t)inv->n_segments + 2, sizeof(*at));
	inv->live = build_room(inv->build, LIVE, inv->n_strips, sizeof(*inv->live));
	if (!at || !inv->live)
		return -ENOMEM;
	memset(at, 0, ((size_t)inv->n_segments + 2) * sizeof(*at));
	inv->segments = at++;
	for (uint32_t i = 0; i < inv->n_strips; i++) {
		const struct strip *strip = &inv->strips[i];

		for (uint32_t s = strip_first_segment(inv, strip);
		     s <= strip_last_segment(inv, strip); s++, n_parts++)
			at[s + 1]++;
	}
	inv->parts = build_room(inv->build, PARTS, n_parts, sizeof(*inv->parts));
	if (!inv->parts)
		return -ENOMEM;
	for (uint32_t s = 0; s < inv->n_segments; s++)
		at[s + 1] += at[s];
	/* at[s] is where segment s goes on; at the end, where s + 1 begins, so that inv->segments
	 * lags it by one */
	for (uint32_t i = 0; i < inv->n_strips; i++)
		for (uint32_t s = strip_first_segment(inv, &inv->strips[i]);
		     s <= strip_last_segment(inv, &inv->strips[i]); s++)
			inv->parts[at[s]++] = i;
	return 0;
}

/* A strip's blocks in a segment, for those of the rows that see them. */
static void emit_strip(struct invariant *inv, const struct strip *strip, uint32_t segment,
		       struct order_rows rows)
{
	const struct work_row *row = inv->build->list->rows;
	uint32_t block = max_u32(strip->block, segment * inv->segment_blocks);
	uint32_t end = min_u32(strip->block_end, (segment + 1) * inv->segment_blocks);

	rows.begin = max_u32(rows.begin, strip->row_begin);
	rows.end = min_u32(rows.end, strip->row_end);
	for (; block < end; block++) {
		const uint32_t *at = &inv->blocks[strip->raw + block - strip->block];
		const struct work_piece *from = &inv->pieces[at[0]], *to = &inv->pieces[at[1]];

		while (rows.begin < rows.end && row[rows.begin].pos < from->pos)
			rows.begin++;
		while (rows.begin < rows.end && row[rows.end - 1].pos < from->pos)
			rows.end--;
		if (rows.begin == rows.end)
			return;
		for (; from < to; from++) {
			struct work_piece piece = *from;

			piece.row_begin = max_u32(piece.row_begin, rows.begin);
			piece.row_end = min_u32(piece.row_end, rows.end);
			if (piece.row_begin < piece.row_end)
				build_piece(inv->build, &piece);
		}
		build_tile_end(inv->build);
	}
}

static void emit_item(struct invariant *inv, uint32_t segment, struct order_rows rows)
{
	build_item(inv->build);
	for (uint32_t i = 0; i < inv->n_live; i++)
		emit_strip(inv, &inv->strips[inv->live[i]], segment, rows);
	build_item_end(inv->build);
}

/* Of a strip in a segment: reading it once, and the arithmetic of its rows. */
static double part_cost(const struct invariant *inv, const struct strip *strip, uint32_t segment)
{
	uint32_t first = max_u32(strip->block, segment * inv->segment_blocks);
	uint32_t end = min_u32(strip->block_end, (segment + 1) * inv->segment_blocks);
	double rows = (strip->row_end - strip->row_begin) * (double)inv->build->config->group_heads;

	return (end - first) * (double)BLOCK * (rows + READ_ROWS);
}

/* Cutting a segment between rows, in one walk over them. */
struct cut {
	struct invariant *inv;
	uint32_t segment;
	uint32_t pos, end; /* the segment's positions */
	uint32_t part, part_end; /* not live yet */
	uint32_t row_begin; /* of the item being gathered */
	double cost; /* of its rows so far */
	uint32_t best_row, best_shared; /* where to cut it; best_row 0: nowhere */
	double best_cost; /* before best_row */
};

static uint32_t overlap(const struct cut *cut, uint32_t begin, uint32_t end)
{
	begin = max_u32(begin, cut->pos);
	end = min_u32(end, cut->end);
	return begin < end ? end - begin : 0;
}

/* Makes the item that ends before row_end. Strips that reach further stay live, in order. */
static void cut_item(struct cut *cut, uint32_t row_end)
{
	struct invariant *inv = cut->inv;
	uint32_t n_live = 0;

	while (cut->part < cut->part_end && inv->strips[inv->parts[cut->part]].row_begin < row_end)
		inv->live[inv->n_live++] = inv->parts[cut->part++];
	emit_item(inv, cut->segment, (struct order_rows){cut->row_begin, row_end});
	for (uint32_t i = 0; i < inv->n_live; i++)
		if (inv->strips[inv->live[i]].row_end > row_end)
			inv->live[n_live++] = inv->live[i];
	inv->n_live = n_live;
	cut->row_begin = row_end;
}

/* Rows from row on, which cost so much and share so many tokens of the segment with the row
 * before. */
static void cut_rows(struct cut *cut, uint32_t row, double cost, uint32_t shared)
{
	double limit = cut->inv->item_cost;
	bool better = !cut->best_row || shared < cut->best_shared ||
		      (shared == cut->best_shared && cut->cost <= limit);

	if (cut->cost > limit / 2 && better) {
		cut->best_row = row;
		cut->best_shared = shared;
		cut->best_cost = cut->cost;
	}
	if (cut->best_row && cut->cost + cost > limit * SLACK) {
		cut_item(cut, cut->best_row);
		cut->cost += cut->best_shared * READ_ROWS - cut->best_cost;
		cut->best_row = 0;
	}
	cut->cost += cost;
}

/* A prefill chunk may be cut between its rows too, in whole tiles of rows. */
static void cut_span(struct cut *cut, const struct order_span *span, uint32_t share)
{
	const struct build *build = cut->inv->build;
	const struct work_row *rows = build->list->rows;
	uint32_t heads = build->config->group_heads;
	uint32_t step = max_u32(1, build->config->tile_rows / heads), next;
	uint32_t all = overlap(cut, span->start, span->end);
	uint32_t shared = min_u32(all, overlap(cut, span->start, share));
	double read = (all - shared) * READ_ROWS;

	if (!all)
		return;
	if (build->tree->queries[span->query].parents)
		step = span->row_end - span->row_begin;
	for (uint32_t row = span->row_begin; row < span->row_end; row = next) {
		next = row + min_u32(step, span->row_end - row);
		cut_rows(cut, row,
			 overlap(cut, span->start, rows[next - 1].pos + 1) *
					 (double)((next - row) * heads) +
				 read,
			 shared);
		shared = all;
		read = 0;
	}
}

static void cut_segment(struct invariant *inv, uint32_t segment, uint32_t part, uint32_t part_end)
{
	const struct order *order = inv->build->order;
	uint64_t end = (segment + 1) * (uint64_t)inv->segment_blocks * BLOCK;
	struct cut cut = {.inv = inv,
			  .segment = segment,
			  .pos = segment * inv->segment_blocks * BLOCK,
			  .end = end > UINT32_MAX ? UINT32_MAX : (uint32_t)end,
			  .part = part,
			  .part_end = part_end};
	uint32_t row_end = 0;

	for (uint32_t i = part; i < part_end; i++)
		row_end = max_u32(row_end, inv->strips[inv->parts[i]].row_end);
	inv->n_live = 0;
	for (uint32_t i = inv->strips[inv->parts[part]].span;
	     i < inv->build->tree->n_queries && order->spans[i].row_begin < row_end; i++)
		cut_span(&cut, &order->spans[i], inv->shares[i]);
	cut_item(&cut, row_end);
}

static void emit_segment(struct invariant *inv, uint32_t segment, uint32_t part, uint32_t part_end)
{
	double cost = 0;

	inv->n_live = 0;
	for (uint32_t i = part; i < part_end; i++) {
		cost += part_cost(inv, &inv->strips[inv->parts[i]], segment);
		inv->live[inv->n_live++] = inv->parts[i];
		if (inv->alone) {
			emit_item(inv, segment, (struct order_rows){0, UINT32_MAX});
			inv->n_live = 0;
		}
	}
	if (cost > inv->item_cost)
		cut_segment(inv, segment, part, part_end);
	else if (inv->n_live)
		emit_item(inv, segment, (struct order_rows){0, UINT32_MAX});
}

/* Small items are not worth cutting: reading their tokens again would cost as much as it frees. */
static void weigh(struct invariant *inv)
{
	const struct plan_config *config = inv->build->config;
	double total = 0, least = 2 * READ_ROWS * config->segment_tokens;

	for (uint32_t i = 0; i < inv->n_strips; i++) {
		const struct strip *strip = &inv->strips[i];
		double rows = (strip->row_end - strip->row_begin) * (double)config->group_heads;

		total += (strip->block_end - strip->block) * (double)BLOCK * (rows + READ_ROWS);
	}
	inv->item_cost = total / (ITEMS_PER_UNIT * max_u32(config->n_units, 1));
	if (inv->item_cost < least)
		inv->item_cost = least;
	if (inv->alone)
		inv->item_cost = INFINITY;
}

int invariant_plan(struct build *build)
{
	const struct plan_config *config = build->config;
	struct invariant inv = {.build = build,
				.alone = config->policy == PLAN_NONE,
				.segment_blocks = config->segment_tokens / BLOCK};
	int r;

	if (!inv.segment_blocks || config->segment_tokens % BLOCK)
		return -EINVAL;
	r = make_strips(&inv);
	if (!r)
		r = sort_strips(&inv);
	if (!r)
		r = make_segments(&inv);
	if (r)
		return r;
	weigh(&inv);
	for (uint32_t s = 0; s < inv.n_segments; s++)
		emit_segment(&inv, inv.first_segment + s, inv.segments[s], inv.segments[s + 1]);
	return 0;
}
