/* sparse.h - the parts of coppice-bench sparse: figures of a backend (sparse.c), and of the small
 * real model behind a daemon (sparse_model.c). */
#ifndef COPPICE_BENCH_SPARSE_H
#define COPPICE_BENCH_SPARSE_H

#include <stdbool.h>
#include <stdint.h>

struct sparse_options {
	const char *backend, *module; /* cpu or cuda; coppice-cuda.so */
	uint32_t n_q_heads, n_kv_heads; /* 0: as suits the backend */
	uint32_t n_tokens, n_queries; /* of the path; of the chunk at its end */
	uint32_t n_windows; /* of held-out text */
	uint32_t stride, block_tokens; /* of what is chosen, and of the model's table */
	bool below; /* the model's KV is below the pool: blocks are chosen from its summary */
};

/* Held-out loss, what was attended to, and time of the small model's windows, for several tau. Ends
 * the program where something fails. */
void sparse_model(const struct sparse_options *options);

#endif
