/* sparse_path.h - a path in a backend's pages, a chunk of queries at its end: what coppice-bench
 * sparse measures. */
#ifndef COPPICE_BENCH_SPARSE_PATH_H
#define COPPICE_BENCH_SPARSE_PATH_H

#include "card.h"
#include "sparse.h"

#include "kernels/plan/plan.h"

struct sparse_path {
	const struct backend_ops *ops;
	const struct card *card; /* NULL: the CPU's backend */
	struct backend *backend; /* owned */
	struct work_shape shape;
	uint32_t n_tokens;
	struct work_slice *slices; /* owned */
	uint32_t n_slices;
	uint64_t q, k, v, o; /* owned: q and o of the chunk, k and v of a period */
	struct work_node node;
	struct work_tree tree;
	struct plan_config plan;
};

uint64_t sparse_q_row_bytes(const struct sparse_path *p);
/* A batch to its end. */
void sparse_run(struct sparse_path *p, const struct backend_job *jobs, uint32_t n_jobs);
/* card NULL: the CPU's backend. End the program where something fails. */
void sparse_path_open(struct sparse_path *p, const struct sparse_options *o,
		      const struct card *card);
void sparse_path_close(struct sparse_path *p);

#endif
