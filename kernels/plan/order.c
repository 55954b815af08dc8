/*
 * order.c - checks a tree by the rules of work.h and puts its queries in depth-first order: a
 * node's rows are one interval, and so are those that see a draft token. Nobody later looks at the
 * tree's shape again.
 */
#include "order.h"
#include "proto/arith.h"

#include <errno.h>
#include <string.h>

#define PAGE_TOKENS_MAX 64u

/* Tokens of the query's draft tree. */
static uint32_t n_drafts_of(const struct work_query *query)
{
	return query->n_before + query->n_rows;
}

/* Draft trees that are mere chains need no intervals: causality says it all. */
static bool is_tree(const struct work_query *query)
{
	if (!query->parents)
		return false;
	for (uint32_t i = 0; i < n_drafts_of(query); i++)
		if (query->parents[i] != (i ? i - 1 : WORK_NONE))
			return true;
	return false;
}

static int check_slices(const struct work_tree *tree, const struct work_node *node)
{
	const struct work_slice *slice;
	uint64_t n_tokens = 0;

	if ((uint64_t)node->slice + node->n_slices > tree->n_slices)
		return -EINVAL;
	slice = &tree->slices[node->slice];
	for (uint32_t i = 0; i < node->n_slices; i++) {
		if (!slice[i].count || slice[i].first + slice[i].count > PAGE_TOKENS_MAX)
			return -EINVAL;
		n_tokens += slice[i].count;
	}
	return n_tokens == node->n_tokens ? 0 : -EINVAL;
}

static int check_node(const struct work_tree *tree, uint32_t index)
{
	const struct work_node *node = &tree->nodes[index], *parent;

	if (!node->n_tokens || node->n_tokens > UINT32_MAX - 1 - node->pos)
		return -EINVAL;
	if (node->parent != WORK_NONE) {
		if (node->parent >= index)
			return -EINVAL;
		parent = &tree->nodes[node->parent];
		if (node->pos != parent->pos + parent->n_tokens)
			return -EINVAL;
	}
	return check_slices(tree, node);
}

static int check_draft(const struct work_tree *tree, const struct work_query *query)
{
	const struct work_node *node = &tree->nodes[query->node];

	if (query->n_before > node->n_tokens || query->n_rows > node->n_tokens - query->n_before ||
	    query->pos + query->n_rows != node->pos + node->n_tokens)
		return -EINVAL;
	for (uint32_t i = 0; i < n_drafts_of(query); i++)
		if (query->parents[i] != WORK_NONE && query->parents[i] >= i)
			return -EINVAL;
	return 0;
}

static int check_query(const struct work_tree *tree, const struct work_query *query)
{
	const struct work_node *node;

	if (!query->n_rows || query->n_rows > UINT32_MAX - 1 - query->pos)
		return -EINVAL;
	if (query->node == WORK_NONE)
		return query->parents ? -EINVAL : 0;
	if (query->node >= tree->n_nodes)
		return -EINVAL;
	node = &tree->nodes[query->node];
	if (query->pos + query->n_rows > node->pos + node->n_tokens &&
	    (query->parents || query->pos < node->pos + node->n_tokens))
		return -EINVAL;
	return query->parents ? check_draft(tree, query) : 0;
}

static int reserve(struct order *order, const struct work_tree *tree)
{
	struct array *memory = order->memory;

	order->nodes = array_room(&memory[0], tree->n_nodes, sizeof(*order->nodes));
	order->spans = array_room(&memory[1], tree->n_queries, sizeof(*order->spans));
	order->query_row = array_room(&memory[2], tree->n_queries, sizeof(*order->query_row));
	order->path = array_room(&memory[3], tree->n_nodes, sizeof(*order->path));
	return order->nodes && order->spans && order->query_row && order->path ? 0 : -ENOMEM;
}

/* Of the query's rows. */
static uint32_t lowest_of(const struct work_query *query)
{
	uint32_t low = query->lows ? UINT32_MAX : 0;

	for (uint32_t i = 0; query->lows && i < query->n_rows; i++)
		low = min_u32(query->lows[i], low);
	return low;
}

static int count_queries(struct order *order, const struct work_tree *tree)
{
	uint64_t n_rows = 0;

	order->n_drafts = 0;
	order->bounded = false;
	for (uint32_t i = 0; i < tree->n_queries; i++) {
		const struct work_query *query = &tree->queries[i];
		struct order_node *node;

		if (check_query(tree, query))
			return -EINVAL;
		n_rows += query->n_rows;
		if (n_rows >= WORK_NONE)
			return -EINVAL;
		order->bounded |= query->lows != NULL;
		if (query->node == WORK_NONE)
			continue;
		node = &order->nodes[query->node];
		node->own_rows += query->n_rows;
		if (query->pos + query->n_rows > node->seen_end)
			node->seen_end = query->pos + query->n_rows;
		if (!is_tree(query))
			continue;
		node->draft = i;
		node->first_draft = order->n_drafts;
		order->n_drafts += n_drafts_of(query);
	}
	order->n_rows = (uint32_t)n_rows;
	return 0;
}

/* From the leaves up. What a row below sees of a node ends with the node at the latest. */
static int count_nodes(struct order *order, const struct work_tree *tree)
{
	for (uint32_t i = tree->n_nodes; i-- > 0;) {
		const struct work_node *node = &tree->nodes[i];
		struct order_node *at = &order->nodes[i], *up;
		uint32_t seen_end = at->seen_end;

		at->row_end += at->own_rows;
		if (at->draft != WORK_NONE && at->row_end != tree->queries[at->draft].n_rows)
			return -EINVAL;
		if (seen_end > node->pos + node->n_tokens)
			at->seen_end = node->pos + node->n_tokens;
		if (node->parent == WORK_NONE)
			continue;
		up = &order->nodes[node->parent];
		up->row_end += at->row_end;
		if (seen_end > up->seen_end)
			up->seen_end = seen_end;
	}
	return 0;
}

int order_count(struct order *order, const struct work_tree *tree)
{
	int r = reserve(order, tree);

	if (r)
		return r;
	for (uint32_t i = 0; i < tree->n_nodes; i++) {
		order->nodes[i] = (struct order_node){.draft = WORK_NONE};
		r = check_node(tree, i);
		if (r)
			return r;
	}
	r = count_queries(order, tree);
	if (!r)
		r = count_nodes(order, tree);
	if (r)
		return r;
	order->drafts = array_room(&order->memory[4], order->n_drafts, sizeof(*order->drafts));
	return order->drafts ? 0 : -ENOMEM;
}

/* Parents come before their children, so each node finds its family's cursor set. Returns the rows
 * given out. */
static uint32_t place_nodes(struct order *order, const struct work_tree *tree, const bool *last)
{
	uint32_t n_rows = 0;

	for (uint32_t i = 0; i < tree->n_nodes; i++) {
		struct order_node *at = &order->nodes[i];
		uint32_t n = at->row_end, parent = tree->nodes[i].parent;
		uint32_t *front = parent == WORK_NONE ? &n_rows : &order->nodes[parent].front;

		if (last && last[i] && parent != WORK_NONE) {
			order->nodes[parent].back -= n;
			at->row_begin = order->nodes[parent].back;
		} else {
			at->row_begin = *front;
			*front += n;
		}
		at->start = parent == WORK_NONE ? tree->nodes[i].pos : order->nodes[parent].start;
		at->row_end = at->row_begin + n;
		at->front = at->row_begin + at->own_rows;
		at->back = at->row_end;
	}
	return n_rows;
}

static uint32_t low_of(const struct work_query *query, uint32_t token)
{
	return query->lows ? query->lows[token] : 0;
}

/* How many of the rows see each token of the draft tree: end. */
static void size_draft(const struct work_query *query, struct order_rows *at)
{
	for (uint32_t i = 0; i < n_drafts_of(query); i++)
		at[i].end = i >= query->n_before;
	for (uint32_t i = n_drafts_of(query); i-- > 0;)
		if (query->parents[i] != WORK_NONE)
			at[query->parents[i]].end += at[i].end;
}

/* Each begin served as the children's cursor and has run to the end. */
static void rewind_draft(const struct work_query *query, struct order_rows *at)
{
	for (uint32_t i = n_drafts_of(query); i-- > 0;) {
		uint32_t parent = query->parents[i];

		at[i].begin -= i >= query->n_before;
		if (parent != WORK_NONE && at[i].begin < at[parent].begin)
			at[parent].begin = at[i].begin;
	}
}

/* The draft tree's own depth-first order, by the same cursors: end holds the size, then the
 * interval. */
static void place_draft(struct order *order, const struct work_query *query, uint32_t index,
			struct work_row *rows)
{
	struct order_rows *at = &order->drafts[order->nodes[query->node].first_draft];
	uint32_t front = order->query_row[index], end = query->pos + query->n_rows;

	size_draft(query, at);
	for (uint32_t i = 0; i < n_drafts_of(query); i++) {
		uint32_t parent = query->parents[i], n = at[i].end;
		uint32_t *cursor = parent == WORK_NONE ? &front : &at[parent].begin;
		uint32_t row = *cursor, token = i - query->n_before;
		bool is_row = i >= query->n_before;

		*cursor += n;
		at[i] = (struct order_rows){row + is_row, row + n};
		if (is_row)
			rows[row] = (struct work_row){index, token, end - 1, low_of(query, token)};
	}
	rewind_draft(query, at);
}

static void place_queries(struct order *order, const struct work_tree *tree, uint32_t n_rows,
			  struct work_row *rows)
{
	for (uint32_t i = 0; i < tree->n_nodes; i++)
		order->nodes[i].front = order->nodes[i].row_begin;
	for (uint32_t i = 0; i < tree->n_queries; i++) {
		const struct work_query *query = &tree->queries[i];
		uint32_t *front =
			query->node == WORK_NONE ? &n_rows : &order->nodes[query->node].front;
		uint32_t row = order->query_row[i] = *front;

		*front += query->n_rows;
		if (is_tree(query)) {
			place_draft(order, query, i, rows);
			continue;
		}
		for (uint32_t j = 0; j < query->n_rows; j++)
			rows[row + j] = (struct work_row){i, j, query->pos + j, low_of(query, j)};
	}
}

void order_place(struct order *order, const struct work_tree *tree, const bool *last,
		 struct work_row *rows)
{
	struct order_span *span = order->spans;

	place_queries(order, tree, place_nodes(order, tree, last), rows);
	for (uint32_t row = 0; row < order->n_rows; row = span++->row_end) {
		const struct work_query *query = &tree->queries[rows[row].query];

		*span = (struct order_span){rows[row].query, query->node, row, row + query->n_rows};
		if (query->node != WORK_NONE) {
			span->start = order->nodes[query->node].start;
			const struct work_node *node = &tree->nodes[query->node];

			span->end = query->pos + query->n_rows;
			if (span->end > node->pos + node->n_tokens)
				span->end = node->pos + node->n_tokens;
			if (span->end < span->start)
				span->end = span->start;
			span->low = lowest_of(query);
		}
	}
	order->n_path = 0;
}

/* Climbs from the span's node to one that the path holds already. */
uint32_t order_step(struct order *order, const struct work_tree *tree,
		    const struct order_span *span)
{
	uint32_t n_kept, n_path, node;

	while (order->n_path) {
		const struct order_node *at = &order->nodes[order->path[order->n_path - 1]];

		if (span->row_begin < at->row_end && span->node != WORK_NONE)
			break;
		order->n_path--;
	}
	n_path = n_kept = order->n_path;
	for (node = span->node; node != WORK_NONE; node = tree->nodes[node].parent, n_path++)
		if (n_kept && node == order->path[n_kept - 1])
			break;
	order->n_path = n_path;
	for (node = span->node; n_path > n_kept; node = tree->nodes[node].parent)
		order->path[--n_path] = node;
	return n_kept;
}

void order_done(struct order *order)
{
	for (size_t i = 0; i < sizeof(order->memory) / sizeof(order->memory[0]); i++)
		array_done(&order->memory[i]);
	memset(order, 0, sizeof(*order));
}
