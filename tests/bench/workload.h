/*
 * workload.h - a tree of KV by levels, with random data, in a backend's pages; one query a leaf.
 */
#ifndef COPPICE_BENCH_WORKLOAD_H
#define COPPICE_BENCH_WORKLOAD_H

#include "kernels/backend.h"

#define WORKLOAD_LEVELS 32u

/* nodes[i] nodes of tokens[i] tokens each on level i; children are spread evenly over the level above. */
struct workload_spec {
	char name[64];
	uint32_t nodes[WORKLOAD_LEVELS];
	uint32_t tokens[WORKLOAD_LEVELS];
	uint32_t n_levels;
	struct work_shape shape;
};

/* Memory that the backend can reach. */
struct workload_arena {
	char *host; /* owned */
	size_t bytes;
	uint64_t base; /* the backend's address of it; 0: not attached */
};

struct workload {
	const struct backend_ops *ops;
	struct backend *backend;
	struct work_shape shape;
	struct work_tree tree;
	struct work_node *nodes; /* owned */
	struct work_slice *slices; /* owned */
	struct work_query *queries; /* owned */
	struct backend_io *io; /* owned, [n_queries] */
	struct workload_arena arenas[3]; /* of kv, q and o */
	char *kv; /* [page * page_tokens + row][K, V][n_kv_heads][head_dim] */
	char *q; /* [n_queries][n_q_heads][head_dim] */
	char *o; /* as q */
	uint32_t n_pages;
	uint64_t path_tokens; /* sum over queries */
	uint64_t tokens; /* of all nodes, each once */
};

/* What a pool must hold for a workload. */
uint64_t workload_pool_bytes(const struct workload_spec *spec, uint64_t page_bytes,
			     uint64_t extent_bytes);

/* Builds the tree and appends its KV; the backend stays open until workload_done. 0 or -errno. */
int workload_init(struct workload *w, const struct workload_spec *spec,
		  const struct backend_ops *ops, struct backend *backend);
void workload_done(struct workload *w);

/* Norm of difference / norm of what the last batch wrote, of a sample of queries and KV heads, against float64. */
double workload_error(const struct workload *w);

#endif
