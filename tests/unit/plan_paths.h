/*
 * plan_paths.h - a plan as a device has it that takes tokens in: where each token of each query's
 * path is, held against where the store has it. For tests.
 */
#ifndef PLAN_PATHS_H
#define PLAN_PATHS_H

#include "kernels/backend.h"
#include "kvstore/store.h"

#define PLAN_PATHS_QUERIES 12u
#define PLAN_PATHS_TOKENS 1024u

struct plan_paths {
	uint64_t id;
	uint32_t n_queries, n_taken; /* tokens of a row */
	uint32_t n_tokens[PLAN_PATHS_QUERIES];
	struct work_slice tokens[PLAN_PATHS_QUERIES][PLAN_PATHS_TOKENS]; /* one by one */
};

/* As the job's tree has them. */
void plan_paths_fill(struct plan_paths *p, const struct backend_job *job);
/* Takes in the job's new tokens, each where its row says. */
void plan_paths_take(struct plan_paths *p, const struct backend_job *job);
/* The query's path is the sequence's, with its new tokens, and no other. */
void plan_paths_check(const struct plan_paths *p, uint32_t query, const struct store_seq *seq);

#endif
