/*
 * estimate_model.h - which blocks of keys a chunk of queries will attend to, from a few of their
 * products (kernels/cpu/estimate_pages.h). In float64, by the book: what kernels are compared with.
 */
#ifndef COPPICE_TESTS_ESTIMATE_MODEL_H
#define COPPICE_TESTS_ESTIMATE_MODEL_H

#include "proto/arith.h"
#include "proto/must_check.h"

#include <stdint.h>

struct estimate_shape {
	uint32_t n_q_heads, n_kv_heads, head_dim;
	uint32_t stride; /* of a square */
	uint32_t block_tokens; /* a multiple of the stride */
	double scale; /* softmax scale of the model */
};

/* Queries at positions q_pos to q_pos + n_q - 1, keys at 0 to n_k - 1. q_pos is a multiple of the
 * stride. */
struct estimate_input {
	const float *q; /* [n_q][n_q_heads][head_dim] */
	const float *k; /* [n_k][n_kv_heads][head_dim]; NULL: from means alone */
	/* [squares of n_k][n_kv_heads][head_dim], see estimate_means; unused with k */
	const float *means;
	uint32_t n_q, q_pos, n_k;
};

/* How many blocks, or squares, n tokens begin. */
static inline uint32_t estimate_n_blocks(uint32_t n, uint32_t block_tokens)
{
	return ceil_div(n, block_tokens);
}

/*
 * Masses: ret_mass [n_kv_heads][blocks of n_q][blocks of n_k]. Each row of squares and query head
 * adds 1 to its row of blocks. Blocks of queries begin at q_pos. From means a square's score is the
 * product of its mean query and mean key. 0, -EINVAL, -ENOMEM.
 */
MUST_CHECK int estimate_blocks(const struct estimate_shape *shape,
			       const struct estimate_input *input, double *ret_mass);

/* Sums ratio x ratio blocks: of n_heads matrices [n_rows][n_columns] makes [rows][columns] of
 * estimate_n_blocks(., ratio). */
void estimate_sum(const double *mass, uint32_t n_heads, uint32_t n_rows, uint32_t n_columns,
		  uint32_t ratio, double *ret_mass);

/* The mean key of each square's keys, [squares of n_k][n_kv_heads][head_dim]: what is left of KV
 * that is elsewhere. With K and V of two bytes a value, and means too, it is 1 / (2 x stride) of
 * them. */
void estimate_means(const struct estimate_shape *shape, const float *k, uint32_t n_k,
		    float *ret_means);

#endif
