/*
 * world.h - a random tree with its KV in a backend's pages and in the oracle's, and queries to run
 * over it.
 *
 * Every value outside the tree's slices is NaN. The newest tokens of some queries are not in the
 * pages yet: they are appended by the batch that asks.
 */
#ifndef COPPICE_TESTS_WORLD_H
#define COPPICE_TESTS_WORLD_H

#include "kernels/backend.h"
#include "kernels/plan/plan.h"
#include "oracle.h"

#include <stdbool.h>

#define WORLD_NODES 24
#define WORLD_SLICES 1024
#define WORLD_QUERIES 16
#define WORLD_ROWS 24 /* of a query, at most */
#define WORLD_ARENAS 64

struct world_answer {
	float *o; /* owned, [rows of all queries][n_q_heads][head_dim] */
	float *lse; /* owned, [rows][n_q_heads] */
	void *raw; /* owned: o as the backend wrote it */
	size_t raw_bytes;
};

/* Memory that the backend can reach. */
struct world_arena {
	void *host; /* owned */
	size_t bytes;
	uint64_t base; /* the backend's address of it */
};

/* What float64 says of all rows, one query after the other as they are asked for. */
struct world_truth {
	double *o; /* owned, [rows of all queries][n_q_heads][head_dim] */
	double *lse; /* owned, [rows][n_q_heads] */
	bool known[WORLD_QUERIES];
};

struct world {
	struct work_shape shape;
	const struct backend_ops *ops;
	struct backend *backend; /* owned */
	struct world_arena arenas[WORLD_ARENAS];
	uint32_t n_arenas;
	struct oracle_kv kv;
	struct work_tree tree;
	struct work_node nodes[WORLD_NODES];
	struct work_slice slices[WORLD_SLICES];
	struct work_query queries[WORLD_QUERIES];
	uint32_t parents[WORLD_QUERIES][WORLD_ROWS];
	uint32_t lows[WORLD_QUERIES][WORLD_ROWS];
	uint32_t first_row[WORLD_QUERIES + 1]; /* of a query, in q and answers */
	bool appends[WORLD_QUERIES]; /* its tokens come with the batch */
	bool silent[WORLD_QUERIES]; /* it wants no output, and its Q is nowhere */
	uint32_t next_page;
	uint32_t page_step; /* pages are those that are shape.home modulo this */
	float *q; /* owned, [rows][n_q_heads][head_dim] as the dtype holds it */
	void *q_raw; /* of an arena */
	void *kv_raw; /* of an arena: [token row of the pool][K, V][n_kv_heads][head_dim] */
	struct world_truth truth;
};

struct world_want {
	struct work_shape shape;
	const struct backend_ops *ops; /* NULL: the CPU's */
	const struct group_config *group; /* of ops that are a group's */
	/* 0: 4 MiB; small ones spread the pages over the devices of a group */
	uint64_t extent_bytes;
	uint32_t n_threads;
	uint32_t n_nodes;
	uint32_t n_queries;
	uint32_t node_tokens; /* at most */
	bool drafts;
	bool windows; /* rows of many queries see nothing before some position */
};

/* Asserts that all goes well; layer is the last of the shape. */
void world_init(struct world *w, const struct world_want *want, struct oracle_random *random);
void world_done(struct world *w);
/* The whole of the pool's pages once more from kv, NaN outside slices. */
void world_load(struct world *w);

/* Runs the queries [first, first + n) by a policy and decodes; other rows of the answer stay
 * NaN. */
void world_run(struct world *w, const struct plan_config *config, uint32_t first, uint32_t n,
	       struct world_answer *ret);
void world_answer_done(struct world_answer *answer);

/* The largest over queries [first, first + n) of norm of difference / norm; ret_lse: largest
 * difference. */
double world_error(struct world *w, uint32_t first, uint32_t n, const struct world_answer *answer,
		   double *ret_lse);

/* The truth with the rows of a query in it. It is computed at the first question after world_init
 * or world_load. */
const struct world_truth *world_truth(struct world *w, uint32_t query);

/* Memory that the backend can reach, until world_done or world_release; and its address there. */
void *world_alloc(struct world *w, size_t bytes);
void world_release(struct world *w, void *at);
uint64_t world_address(const struct world *w, const void *at);

uint32_t world_rows(const struct world *w);
size_t world_row_values(const struct world *w); /* n_q_heads * head_dim */

#endif
