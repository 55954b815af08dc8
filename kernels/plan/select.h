/*
 * select.h - sparse prefill: blocks of keys chosen by their estimated mass, and the plan that
 * attends to these alone.
 *
 * A block is block_tokens positions from a multiple of it on. What a query attends to of its path
 * is a set of blocks, as bits; a selection is only another plan. Which KV heads share a selection
 * is the caller's matter: one list for each.
 *
 * Where every block is kept the list is that of `none`, and so are the bits of what it computes.
 */
#ifndef COPPICE_PLAN_SELECT_H
#define COPPICE_PLAN_SELECT_H

#include "proto/arith.h"
#include "proto/must_check.h"
#include "plan.h"

#include <stdbool.h>

static inline uint32_t select_n_words(uint32_t n_blocks)
{
	return ceil_div(n_blocks, 64);
}

static inline bool select_has(const uint64_t *kept, uint32_t block)
{
	return kept[block / 64] >> (block % 64) & 1;
}

struct select_config {
	double tau; /* share of the estimated mass to be kept at least; from 1 on everything is */
	uint32_t sink_blocks; /* the first, always kept */
	uint32_t recent_blocks; /* the last, always kept */
};

struct select_result {
	uint32_t n_kept;
	double kept_mass; /* of total_mass */
	double total_mass;
};

/*
 * Of n blocks, mass[i] >= 0 each, keeps the always kept ones, then the heaviest until the kept mass
 * is tau of the total; of equally heavy ones those nearer to the end first. Sets the bits of
 * ret_kept, [select_n_words(n)]. (XAttention, arXiv:2503.16428, section 2.2.) 0 or -ENOMEM.
 */
MUST_CHECK int select_blocks(const struct select_config *config, const double *mass, uint32_t n,
			     uint64_t *ret_kept, struct select_result *ret);

/*
 * A chunk of queries of one sequence, and the blocks of keys that were estimated for blocks of its
 * queries. The first `skip` queries had no estimate: they go with the first block.
 */
struct select_chunk {
	uint32_t block_tokens; /* of queries and of keys */
	uint32_t pos, n; /* of its queries */
	uint32_t skip;
	uint32_t n_blocks; /* of keys up to the end, in a row of masses */
};

/* Shares, each in what it is a part of. */
struct select_shares {
	double attended, visible; /* query x block of keys */
	double kept_mass, total_mass;
};

/* Queries [begin, end) of a chunk. */
struct select_range {
	uint32_t begin, end;
};

static inline uint32_t select_n_ranges(const struct select_chunk *chunk)
{
	uint32_t n = chunk->n - chunk->skip;

	return ceil_div(n, chunk->block_tokens);
}

/* Of a chunk that has more queries than it skips. */
struct select_range select_range_at(const struct select_chunk *chunk, uint32_t index);

/* For one KV head: mass [ranges][n_blocks], ret_kept [ranges][select_n_words(n_blocks)]. Beside
 * what the config says the blocks that a range's own queries stand in are kept. Adds to *shares. 0
 * or -ENOMEM. */
MUST_CHECK int select_chunk(const struct select_config *config, const struct select_chunk *chunk,
			    const float *mass, uint64_t *ret_kept, struct select_shares *shares);

/* What one query attends to. */
struct select_query {
	const uint64_t *kept; /* bits; NULL: everything */
	uint32_t n_blocks; /* with bits; those from here on are kept */
};

/* As plan_make with policy none, for the kept blocks alone. queries: [tree->n_queries].
 * config->policy is ignored; block_tokens is a multiple of WORK_TILE_TOKENS (-EINVAL). A row that
 * sees nothing has no partial. */
MUST_CHECK int select_plan(const struct plan_config *config, const struct work_tree *tree,
			   const struct select_query *queries, uint32_t block_tokens,
			   struct work_list *list);

#endif
