/*
 * grove.h - trees for the planner's tests, put together node by node, and lists that are made of
 * them and checked.
 */
#ifndef COPPICE_TESTS_GROVE_H
#define COPPICE_TESTS_GROVE_H

#include "kernels/plan/plan.h"

#define GROVE_NODES 256u
#define GROVE_SLICES 8192u
#define GROVE_QUERIES 256u
#define GROVE_PARENTS 4096u

/* A tree that is being put together: every page belongs to one node. */
struct grove {
	struct work_node nodes[GROVE_NODES];
	struct work_slice slices[GROVE_SLICES];
	struct work_query queries[GROVE_QUERIES];
	uint32_t parents[GROVE_PARENTS];
	struct work_tree tree;
	uint32_t n_parents, n_pages, page_tokens;
};

/* COPPICE_SEED or the clock; printed. */
void grove_seed(void);
/* 0 to below - 1 */
uint32_t grove_below(uint32_t below);

/* The caller's, to free. */
struct grove *grove_new(uint32_t page_tokens);
/* Nodes of so many tokens; return their index. */
uint32_t grove_root(struct grove *g, uint32_t pos, uint32_t n_tokens);
uint32_t grove_child(struct grove *g, uint32_t parent, uint32_t n_tokens);
/* The last n_rows positions of the node's path. */
struct work_query *grove_query(struct grove *g, uint32_t node, uint32_t n_rows);
/* The same as a random draft tree. */
void grove_draft(struct grove *g, uint32_t node, uint32_t n_rows);
/* One root, and queries of one row at leaves of their own. */
struct grove *grove_fan(uint32_t n_prefix, uint32_t n_queries, uint32_t n_own);

/* Of 8 heads and one unit. */
struct plan_config grove_config(enum plan_policy policy);
/* The same for one of the planner's ways, of which there are PLAN_N_WAYS. */
struct plan_config grove_config_way(uint32_t way);
/* Asserts that the list passes plan_list_check; makes one, and asserts the same. */
void grove_check(const struct grove *g, const struct work_list *list);
void grove_plan(const struct grove *g, const struct plan_config *config, struct work_list *list);

#endif
