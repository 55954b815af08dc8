/*
 * fasttree.h - greedy assignment of tree edges by modelled cost.
 *
 * Z. Pan et al., "FastTree: Optimizing Attention Kernel and Runtime for Tree-Structured LLM
 * Inference", MLSys 2025, and the constants of its artifact. With q queries on a context of k
 * tokens, g query heads per KV head and tiles of TQ queries and TK tokens, a group costs what its
 * tiles are padded by:
 *
 *      pad_q = (TQ - q mod TQ) mod TQ        pad_k = max(0, TK - k)
 *      cost(q, k) = alpha g pad_q k + beta g q pad_k
 *
 * (TQ, TK) are the wide ones for groups of more queries than the narrow TQ, else the narrow ones.
 * From the roots down, a node with q queries left and context k meets each child (q', k') in turn.
 * Apart, the child's queries stay in the node's group and are reduced with their own group later;
 * together, they take the node's context over to theirs:
 *
 *      apart    = cost(q, k) + cost(q', k') + gamma q'
 *      together = cost(q - q', k) + cost(q', k + k')
 *
 * If together is less, q loses q' and the child's context becomes k + k'. Contexts are split at
 * chunk_tokens; if a phase (wide, narrow) has too few items for the units, at an eighth of it; if
 * it still has, both phases use one tile size.
 */
#ifndef COPPICE_PLAN_FASTTREE_H
#define COPPICE_PLAN_FASTTREE_H

#include "proto/must_check.h"
#include "build.h"

struct fasttree_tiles {
	uint32_t rows[2]; /* of the wide and the narrow phase */
	uint32_t tokens[2];
};

/* Rows that a node computes, and the tokens they meet there: its own and those of ancestors taken
 * over. */
struct fasttree_group {
	uint32_t n_rows, n_tokens;
};

/* Wide tiles of tile_rows / group_heads rows, narrow ones of a quarter of that, and 32 tokens in
 * both. */
void fasttree_tiles_init(struct fasttree_tiles *tiles, const struct plan_config *config);

double fasttree_cost(const struct plan_config *config, const struct fasttree_tiles *tiles,
		     uint32_t n_rows, uint32_t n_tokens);

/* Whether a child takes the context over, given what is left of its parent. */
bool fasttree_together(const struct plan_config *config, const struct fasttree_tiles *tiles,
		       struct fasttree_group parent, struct fasttree_group child);

/* Decides the edges: after order_count, before build_begin, whose `last` *ret becomes (of the
 * build's memory). */
MUST_CHECK int fasttree_choose(struct build *build, const bool **ret);

MUST_CHECK int fasttree_plan(struct build *build);

#endif
