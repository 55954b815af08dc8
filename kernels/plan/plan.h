/*
 * plan.h - from a tree to a work list, by one of several policies behind one interface.
 *
 *   none      each query alone, its whole path: the base line.
 *   cascade   one item per node: all rows below it. Partials merged per row (Cascade inference).
 *   fasttree  greedy assignment of queries to ancestors' groups by modelled cost of each tree edge
 *             (alpha, beta, gamma), tile sizes by phase, long contexts split (FastTree, MLSys
 *             2025).
 *   deft      Node, Node-Chunk or Flatten: KV-guided groups, flattened depth first and cut evenly,
 *             bit masks (DeFT, ICLR 2025).
 *   auto      ours, the default. On the CPU: items of whole paths, tiles cut at absolute multiples
 *             of WORK_TILE_TOKENS, segments at absolute multiples of segment_tokens, so that a
 *             row's bits do not depend on its company. `none` keeps the same promise with the same
 *             cuts. On a GPU (tile_rows is PLAN_DEVICE_ROWS): the tree as it is, see plan/device.h.
 */
#ifndef COPPICE_PLAN_H
#define COPPICE_PLAN_H

#include "proto/must_check.h"
#include "kernels/work.h"

#define PLAN_DEVICE_ROWS 128u /* tile_rows of a backend that cuts items by itself */

/* PLAN_AUTO and so on. */
enum plan_policy {
#define POLICY(id, name, plan) PLAN_##id,
#include "policies.def"
};
enum plan_deft { PLAN_DEFT_NODE, PLAN_DEFT_NODE_CHUNK, PLAN_DEFT_FLATTEN };

/* FastTree's cost of a (queries x context) group; see plan/fasttree.c for the formula and its
 * page. */
struct plan_fasttree_cost {
	double alpha, beta, gamma;
};

struct plan_config {
	enum plan_policy policy;
	enum plan_deft deft;
	struct plan_fasttree_cost fasttree;
	uint32_t group_heads; /* query heads per KV head */
	uint32_t tile_rows; /* token rows x group_heads that a compute unit takes at a time */
	/* auto, none: cut of long contexts; multiple of WORK_TILE_TOKENS */
	uint32_t segment_tokens;
	uint32_t chunk_tokens; /* deft, fasttree: KV tokens per item when a long context is split */
	uint32_t n_units; /* compute units that want work: SMs, or threads, over KV heads */
};

/* Fills *config with defaults that suit shape, policy and n_units. tile_rows becomes 64: a caller
 * with a backend puts the backend's own there. */
void plan_config_init(struct plan_config *config, enum plan_policy policy,
		      const struct work_shape *shape, uint32_t n_units);

/* Sets policy, deft and chunk_tokens of a config that plan_config_init filled, by a name of
 * policies.def. 0, or -EINVAL and *config is untouched. */
MUST_CHECK int plan_policy_parse(const char *name, struct plan_config *config);
const char *plan_policy_name(enum plan_policy policy);

/* What plan_policy_parse takes, each word followed by a space. */
extern const char plan_policy_words[];

/* The ways to plan, each once: policies and their variants, by names that plan_policy_parse takes.
 */
enum {
	PLAN_N_WAYS = 0
#define POLICY(...) +1
#define VARIANT(...) +1
#include "policies.def"
};
extern const char *const plan_ways[PLAN_N_WAYS];

/* Fills *list, which the caller zeroed once and may reuse from call to call (arrays grow, never
 * shrink). 0, -ENOMEM, or -EINVAL where the tree breaks a rule of work.h (or the config makes no
 * sense); after an error the list is empty.
 *
 * deft-flatten only: list->masks holds, from item.mask on, ceil(n / 64) words for each piece of the
 * item in order, n being the item's rows: bit i says that row row_begin + i lies in the piece's
 * interval. */
MUST_CHECK int plan_make(const struct plan_config *config, const struct work_tree *tree,
			 struct work_list *list);
void plan_list_done(struct work_list *list);

/* What the rules of work.h say of a list for this tree: every (row, visible token) pair in exactly
 * one piece of one item, partials complete and merged in ascending position, intervals in bounds,
 * masks equal to intervals. For tests. 0, -ENOMEM, or -EINVAL with a sentence in error. O(rows x
 * tokens); its memory grows with the highest page index. */
MUST_CHECK int plan_list_check(const struct work_tree *tree, const struct work_list *list,
			       char *error, size_t error_bytes);

#endif
