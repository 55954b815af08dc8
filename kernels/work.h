/*
 * work.h - the plain structs between whoever has a tree of KV and whoever computes attention over
 * it.
 *
 * A *tree* (struct work_tree) says what there is: nodes with their slices of pages, and queries,
 * each the new tokens of one sequence at the end of a node. A planner (plan/plan.h) turns it into a
 * *list* (struct work_list): items of rows x tiles of KV. A backend (backend.h) runs the list once
 * per KV head.
 *
 *      tree                        list
 *      root ---- a --- q0          rows    q0 q1 q2        depth first: a node is a run of rows
 *        \------ b --- q1          item 0  rows [0,3)      tiles of root
 *                 \--- q2          item 1  rows [1,3)      tiles of b ...
 *
 * Nothing here depends on layer, head or dtype: one list serves every layer of a token step.
 */
#ifndef COPPICE_WORK_H
#define COPPICE_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORK_NONE UINT32_MAX
/* Keys in a tile at most; planners that promise invariance cut at multiples of it. */
#define WORK_TILE_TOKENS 64u

enum work_dtype { WORK_FP32 = 0, WORK_FP16 = 1, WORK_BF16 = 2 };

static inline size_t work_dtype_bytes(enum work_dtype dtype)
{
	return dtype == WORK_FP32 ? 4 : 2;
}

/* How the devices of a group share the KV of a model: each has some of the pages, or some of the KV
 * heads of every page; or one has it all, and of pages those that would be its own if they were
 * shared out. */
enum work_split { WORK_TOKENS = 0, WORK_HEADS = 1, WORK_HOME = 2 };

/* Query heads that a KV head has at most: their rows of one token fill a tile of a GPU. */
#define WORK_HEADS_MAX 128u
#define WORK_Q_HEADS_MAX 1024u /* of a model */

/* What the KV of a model looks like. n_q_heads is a multiple of n_kv_heads, at most WORK_HEADS_MAX
 * times as many. */
struct work_shape {
	uint32_t n_layers;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim; /* multiple of 16, 16 to 256 */
	uint32_t page_tokens; /* 16, 32 or 64 */
	enum work_dtype dtype; /* of Q, K, V, O and of the pages */
	float scale; /* softmax scale; the planner ignores it */
	enum work_split split; /* where there are several devices; planner and devices ignore it */
	uint32_t home; /* the one device, with WORK_HOME; else 0 */
};

/* Rows [first, first + count) of a page: the token at absolute position p lies in row p %
 * page_tokens. */
struct work_slice {
	uint32_t page;
	uint16_t first;
	uint16_t count;
};

/* A run of tokens at positions [pos, pos + n_tokens). Parents come before their children. Every
 * node but a root begins where its parent ends. Its slices cover its tokens in order; none is
 * empty. */
struct work_node {
	uint32_t parent; /* index into nodes, WORK_NONE for a root */
	uint32_t pos;
	uint32_t n_tokens;
	uint32_t slice; /* first of n_slices in tree->slices */
	uint32_t n_slices;
};

/*
 * n_rows consecutive new tokens of one sequence. Row i sits at position pos + i, sees every token
 * of its path (node and all its ancestors) at positions <= pos + i and nothing later. The new
 * tokens themselves are part of the node's slices (they are appended before attention runs).
 *
 * Draft tree (speculative decoding): parents != NULL. Its n_before + n_rows tokens occupy the last
 * positions of the node, in index order, and the rows are the last n_rows of them: the others' K
 * and V are there already. Row i, token t = n_before + i, sees the node's earlier tokens, all
 * ancestors, and of the draft tokens only itself, parents[t], parents[parents[t]], ... until
 * WORK_NONE. parents[t] < t or WORK_NONE. Nobody else sees that node: no other query ends at it, no
 * node hangs below it.
 *
 * A query may also come wholly after its node's end (pos >= node's pos + n_tokens), where its own
 * tokens are elsewhere: all rows see all of the path then.
 *
 * node == WORK_NONE: no KV at all; the rows get no partials.
 *
 * lows != NULL: row i sees, of all that, nothing before position lows[i] (a window of the last w
 * tokens: pos + i + 1 - w; chunks of w: the last multiple of w up to pos + i). A row may see
 * nothing at all.
 */
struct work_query {
	uint32_t node;
	uint32_t pos;
	uint32_t n_rows;
	const uint32_t *parents; /* [n_before + n_rows] or NULL */
	uint32_t n_before; /* tokens of the draft tree before the first row; 0 without parents */
	const uint32_t *lows; /* [n_rows] or NULL: 0 for every row */
};

struct work_tree {
	const struct work_node *nodes;
	const struct work_slice *slices;
	const struct work_query *queries;
	uint32_t n_nodes;
	uint32_t n_slices;
	uint32_t n_queries;
};

/* One token row of the list, depth first. All n_q_heads / n_kv_heads heads of a KV head go with
 * it. Of a piece it sees the tokens at positions [low, pos]. */
struct work_row {
	uint32_t query; /* index into tree->queries */
	uint32_t token; /* index in the query, 0 to n_rows - 1 */
	/* rows of a draft tree, which their pieces' rows tell apart, all have that of the last */
	uint32_t pos;
	uint32_t low;
};

static inline bool work_row_sees(const struct work_row *row, uint32_t pos)
{
	return row->low <= pos && pos <= row->pos;
}

/* Some token at positions [pos, pos + n)? */
static inline bool work_row_sees_some(const struct work_row *row, uint32_t pos, uint32_t n)
{
	return pos <= row->pos && row->low <= row->pos && row->low < (uint64_t)pos + n;
}

/* Part of a tile: rows [first, first + count) of a page as keys [key, key + count) of the tile.
 * Seen by list rows [row_begin, row_end), and of these by row r only token j with rows[r].low <=
 * pos + j <= rows[r].pos. */
struct work_piece {
	uint32_t page;
	uint16_t first;
	uint16_t count;
	uint32_t key;
	uint32_t pos;
	uint32_t row_begin;
	uint32_t row_end;
};

/* At most WORK_TILE_TOKENS keys, folded in one go. Rows [row_begin, row_end) is the union of its
 * pieces'. */
struct work_tile {
	uint32_t piece;
	uint32_t n_pieces;
	uint32_t row_begin;
	uint32_t row_end;
};

/* Rows [row_begin, row_end) fold n_tiles tiles in order, each row those that it sees, into one
 * partial a row: partial index part + (row - row_begin). */
struct work_item {
	uint32_t row_begin;
	uint32_t row_end;
	uint32_t tile;
	uint32_t n_tiles;
	uint32_t part;
	uint32_t mask; /* first word of a DeFT bit mask in list->masks, or WORK_NONE */
};

/*
 * The plan. Row r's output is the merge of partials merge_parts[merge_first[r] .. merge_first[r +
 * 1]) in that order (ascending absolute position of KV). A row without partials yields O = 0, LSE =
 * -inf. Owned by the planner that filled it (plan_list_done frees).
 */
struct work_list {
	struct work_row *rows; /* owned, [n_rows] */
	struct work_item *items; /* owned, [n_items] */
	struct work_tile *tiles; /* owned, [n_tiles] */
	struct work_piece *pieces; /* owned, [n_pieces] */
	uint64_t *masks; /* owned, [n_masks]; see plan/plan.h, deft */
	uint32_t *merge_first; /* owned, [n_rows + 1] */
	uint32_t *merge_parts; /* owned, [merge_first[n_rows]] */
	uint32_t n_rows, n_items, n_tiles, n_pieces, n_masks;
	uint32_t n_parts; /* partials that a backend must hold per KV head */
	bool bounded; /* some row has a low above 0 */
	/* sum over items of the tokens in their pieces: KV reads of one KV head */
	uint64_t kv_tokens_read;
	uint64_t kv_tokens_alone; /* the same if each query were computed alone */
	struct plan_scratch *scratch; /* owned, the planner's: capacities and working arrays */
};

#endif
