/*
 * build.h - what all policies share: the list under construction and its working memory.
 *
 * A policy opens an item, adds pieces (which gather in tiles) and closes the item; row intervals of
 * tiles and items, partials, counts and merge lists follow from the pieces. Items are made in an
 * order in which the positions that any row sees ascend. Memory that runs out is remembered and
 * reported by build_finish, so that policies need not look at every piece.
 */
#ifndef COPPICE_PLAN_BUILD_H
#define COPPICE_PLAN_BUILD_H

#include "proto/must_check.h"
#include "array.h"
#include "order.h"
#include "plan.h"

enum plan_memory {
	PLAN_ROWS,
	PLAN_ITEMS,
	PLAN_TILES,
	PLAN_PIECES,
	PLAN_MASKS,
	PLAN_MERGE_FIRST,
	PLAN_MERGE_PARTS,
	PLAN_STAMPS,
	PLAN_SEEN,
	PLAN_RANKED,
	PLAN_POLICY /* the first of PLAN_N_POLICY that a policy may use as it likes */
};
#define PLAN_N_POLICY 8

struct plan_scratch {
	struct array memory[PLAN_POLICY + PLAN_N_POLICY]; /* owned */
	struct order order;
};

/* A row sees something in an item. */
struct build_seen {
	uint32_t row, item;
};

struct build_ranked {
	uint32_t row_begin, node;
};

/* Reads a node's tokens in order, a piece at a time. */
struct build_reader {
	const struct work_slice *slice;
	const struct order_rows *draft; /* of the first draft token */
	uint32_t node;
	uint32_t used; /* tokens of *slice behind us */
	uint32_t pos;
	uint32_t draft_pos; /* draft tokens are from here on */
};

struct build {
	const struct plan_config *config;
	const struct work_tree *tree;
	struct work_list *list;
	struct order *order;
	struct plan_scratch *scratch;
	uint32_t *stamps; /* [n_rows], item that last saw the row, plus 1 */
	uint32_t n_seen;
	uint32_t n_keys; /* in the tile being filled */
	/* Tiles are those of absolute positions: a token that nobody sees leaves a gap. */
	bool tiles_by_pos;
	/* where build_tokens began and ended last */
	struct build_reader begun, ended;
	/* whoever is in its rows and sees a later piece of the item has seen this one */
	struct work_piece widest;
	int error;
};

/* A list of nothing, with the arrays that it has. */
void build_empty(struct work_list *list);
/* Readies list and rows. last as in order_place; order_count has been called. 0 or -ENOMEM. */
MUST_CHECK int build_begin(struct build *build, const bool *last);

/* How many of the node's tokens some row sees: the first so many. */
uint32_t build_seen_tokens(const struct build *build, uint32_t node);
/* The nodes of which some row sees a token, depth first: by the rows at or below them, parents
 * before children. 0 or -ENOMEM. */
MUST_CHECK int build_depth_first(struct build *build, const struct build_ranked **ret,
				 uint32_t *ret_n);

/* A policy's own working memory, which: 0 to PLAN_N_POLICY - 1. NULL where memory is short. */
void *build_room(struct build *build, unsigned int which, size_t n, size_t size);

void build_item(struct build *build);
/* Closes the item; one without pieces vanishes. */
void build_item_end(struct build *build);
/* Closes the tile; the next piece begins another. */
void build_tile_end(struct build *build);
/* Adds a piece that lies within the tile (its key says where) and has at least one row, unless all
 * of it is too old for each of them. */
void build_piece(struct build *build, const struct work_piece *piece);

/* Adds the node's tokens at [from, to), densely packed into tiles, for those of the rows that see
 * them. */
void build_tokens(struct build *build, uint32_t node, uint32_t from, uint32_t to,
		  struct order_rows rows);

/* Merge lists and counts. 0 or -ENOMEM. */
MUST_CHECK int build_finish(struct build *build);

/* Stands at position pos of the node. */
void build_reader_init(struct build_reader *reader, const struct build *build, uint32_t node,
		       uint32_t pos);
/* At most n_tokens tokens as page, first, count, pos and the rows that may see them (all, but for
 * draft tokens). */
void build_reader_take(struct build_reader *reader, uint32_t n_tokens, struct work_piece *ret);

#endif
