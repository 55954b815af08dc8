/*
 * select.h - sparse prefill: blocks of keys chosen by their estimated mass, and the plan that attends to these alone.
 *
 * A block is block_tokens positions from a multiple of it on. What a query attends to of its path is a set of blocks, as
 * bits; a selection is only another plan. Which KV heads share a selection is the caller's matter: one list for each.
 *
 * Where every block is kept the list is that of `none`, and so are the bits of what it computes.
 */
#ifndef COPPICE_PLAN_SELECT_H
#define COPPICE_PLAN_SELECT_H

#include "plan.h"

#include <stdbool.h>

static inline uint32_t select_n_words(uint32_t n_blocks)
{
	return n_blocks / 64 + (n_blocks % 64 > 0);
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
 * Of n blocks, mass[i] >= 0 each, keeps the always kept ones, then the heaviest until the kept mass is tau of the
 * total; of equally heavy ones those nearer to the end first. Sets the bits of ret_kept, [select_n_words(n)].
 * (XAttention, arXiv:2503.16428, section 2.2.) 0 or -ENOMEM.
 */
int select_blocks(const struct select_config *config, const double *mass, uint32_t n,
		  uint64_t *ret_kept, struct select_result *ret);

/* What one query attends to. */
struct select_query {
	const uint64_t *kept; /* bits; NULL: everything */
	uint32_t n_blocks; /* with bits; those from here on are kept */
};

/* As plan_make with policy none, for the kept blocks alone. queries: [tree->n_queries]. config->policy is ignored;
 * block_tokens is a multiple of WORK_TILE_TOKENS (-EINVAL). A row that sees nothing has no partial. */
int select_plan(const struct plan_config *config, const struct work_tree *tree,
		const struct select_query *queries, uint32_t block_tokens, struct work_list *list);

#endif
