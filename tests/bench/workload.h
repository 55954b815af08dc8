/*
 * workload.h - a tree of KV with random data in a backend's pages; at each leaf a query of its last
 * tokens.
 */
#ifndef COPPICE_BENCH_WORKLOAD_H
#define COPPICE_BENCH_WORKLOAD_H

#include "kernels/backend.h"

#include <stdbool.h>

#define WORKLOAD_SAMPLES 64u

struct workload_spec {
	char name[64];
	struct work_shape shape;
	uint32_t *parents; /* owned, [n_nodes]: below i, WORK_NONE for a root */
	uint32_t *tokens; /* owned, [n_nodes] */
	uint32_t n_nodes;
	uint32_t n_new; /* rows of each query, at most the tokens of a leaf */
	uint32_t last_new; /* of the last leaf's, which is a prompt beside them; 0: as the others */
	bool drafts; /* the rows are a draft tree with random parents */
};

/* nodes[i] nodes of tokens[i] tokens each on level i; children are spread evenly over the level
 * above. Sets parents, tokens and n_nodes, and n_new to 1. 0 or -ENOMEM. */
int workload_spec_levels(struct workload_spec *spec, const uint32_t *nodes, const uint32_t *tokens,
			 uint32_t n_levels);
void workload_spec_done(struct workload_spec *spec);

/* Memory that the backend can reach. */
struct workload_arena {
	char *host; /* owned */
	size_t bytes;
	uint64_t base; /* the backend's address of it; 0: not attached */
};

/* A row of which the answer is known. */
struct workload_sample {
	uint32_t query, token, head;
	double *want; /* owned, [n_q_heads / n_kv_heads][head_dim] */
};

struct workload {
	const struct backend_ops *ops;
	struct backend *backend;
	struct work_shape shape;
	struct work_tree tree;
	struct work_node *nodes; /* owned */
	struct work_slice *slices; /* owned */
	struct work_query *queries; /* owned */
	uint32_t *draft_parents; /* owned, [n_new], of every query; NULL: none */
	struct backend_io *io; /* owned, [n_queries] */
	bool *grown; /* owned, [n_queries]: is a token longer than it was made */
	struct workload_arena arenas[3]; /* of kv, q and o */
	char *kv; /* [page * page_tokens + row][K, V][n_kv_heads][head_dim] */
	char *q; /* [n_rows][n_q_heads][head_dim] */
	char *o; /* as q */
	uint32_t n_pages;
	uint32_t n_rows; /* of all queries */
	uint64_t path_tokens; /* that the rows see, sum over rows */
	uint64_t tokens; /* of all nodes, each once */
	struct workload_sample samples[WORKLOAD_SAMPLES];
	uint32_t n_samples; /* 0 until the first is wanted */
};

/* What a pool must hold for a workload. */
uint64_t workload_pool_bytes(const struct workload_spec *spec, uint64_t page_bytes,
			     uint64_t extent_bytes);

/* Builds the tree alone, without KV, Q and O: what planning needs. 0 or -ENOMEM. */
int workload_init_tree(struct workload *w, const struct workload_spec *spec);
/* Builds the tree and appends its KV; the backend stays open until workload_done. 0 or -errno. */
int workload_init(struct workload *w, const struct workload_spec *spec,
		  const struct backend_ops *ops, struct backend *backend);
void workload_done(struct workload *w);

/* A decode step later, and back: each query that is one row is that of the next token, where its
 * page has room for it. */
void workload_grow(struct workload *w);
void workload_shrink(struct workload *w);

/* Bytes that a batch must read and write at least: the KV of each node once, Q and O. */
uint64_t workload_bytes(const struct workload *w);
/* Operations of a batch, a multiply-add being two. */
double workload_flops(const struct workload *w);

/* Norm of difference / norm of what the last batch wrote, of a sample of rows and KV heads, against
 * float64. */
double workload_error(struct workload *w);

#endif
