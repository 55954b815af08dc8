/*
 * order.h - queries in depth-first order of the tree, so that whoever sees a token is one interval
 * of rows.
 *
 *      root ---- a            own rows of a node first, then those of its children, in index order
 *        \------ b --- c
 *      rows:  [root's own | a | b's own | c]       root sees all, b the last two
 *
 * Spans are the queries in that order. A span sees the positions [start, end) of its path. Children
 * named in `last` come after their siblings, which keeps the rest of the family in one interval
 * too.
 */
#ifndef COPPICE_PLAN_ORDER_H
#define COPPICE_PLAN_ORDER_H

#include "proto/must_check.h"
#include "array.h"
#include "kernels/work.h"

#include <stdbool.h>

struct order_node {
	uint32_t row_begin, row_end; /* of all queries at or below the node */
	uint32_t own_rows; /* of queries that end here; they come first */
	/* no row sees a position from here on; <= node's pos where none sees it */
	uint32_t seen_end;
	uint32_t start; /* where the root's path starts */
	uint32_t draft; /* query whose draft tree ends the node, or WORK_NONE */
	uint32_t first_draft; /* of the tree's tokens, in drafts */
	uint32_t front, back; /* where the next child's rows go */
};

struct order_span {
	uint32_t query, node;
	uint32_t row_begin, row_end;
	uint32_t start, end; /* positions of its path up to its last row's; start == end: none */
	uint32_t low; /* no row of it sees a position before */
};

/* Rows that see a draft token. */
struct order_rows {
	uint32_t begin, end;
};

struct order {
	struct order_node *nodes; /* [tree->n_nodes] */
	struct order_span *spans; /* [tree->n_queries] */
	struct order_rows *drafts; /* [n_drafts], of each draft tree its tokens */
	uint32_t n_drafts;
	uint32_t *query_row; /* [tree->n_queries], first row of the query */
	uint32_t *path; /* [tree->n_nodes], nodes from root to the span last stepped to */
	uint32_t n_path;
	uint32_t n_rows;
	bool bounded; /* some row has a low above 0 */
	struct array memory[5]; /* owned, behind the pointers above */
};

/* Checks the tree against the rules of work.h and counts: row_end of a node is the number of its
 * rows, row_begin 0. 0, -EINVAL, -ENOMEM. */
MUST_CHECK int order_count(struct order *order, const struct work_tree *tree);

/* After order_count: rows [n_rows] and all intervals. last: [n_nodes] or NULL. */
void order_place(struct order *order, const struct work_tree *tree, const bool *last,
		 struct work_row *rows);

/* Makes path that of span, given that of the span before it (n_path is 0 before the first). Returns
 * how many of its nodes are shared with that one. */
uint32_t order_step(struct order *order, const struct work_tree *tree,
		    const struct order_span *span);

void order_done(struct order *order);

#endif
