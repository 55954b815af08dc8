/*
 * estimate.h - sparse prefill on the device: the masses of blocks (cpu/estimate_pages.h says of
 * what) of one chunk of queries and the keys of its path, without a matrix of scores in memory.
 *
 *   square    stride x stride tokens; its row of Q is 'stride' tokens side by side, and so is its
 *             row of K, of which the pool holds each KV block of 8 in one piece
 *   slab      64 values of both: what a step of the product takes. Those of K stand as they are in
 *             the pool, so Q is put into that order first
 *   tile      squares that a block multiplies and sums at a time; per row and tile a maximum and a
 *             sum, per row and chunk (of a tile, at most a block of keys) a sum relative to it
 *   window    32 tokens of the path: 4 KV blocks side by side in the pool, or else a list of where
 *             each token is
 *
 * All sums are in the same order every time.
 */
#ifndef COPPICE_CUDA_ESTIMATE_H
#define COPPICE_CUDA_ESTIMATE_H

#include "proto/must_check.h"
#include "kernels/cuda/device/format.h"

#include <stddef.h>

#define ESTIMATE_WINDOW_TOKENS 32u
/* What windows and lists count in: KV blocks where every extent begins at a multiple of one, as
 * tensor maps need it; else sources. */
static inline uint32_t estimate_unit_bytes(uint32_t head_dim)
{
	return head_dim & (head_dim - 1) ? KV_SOURCE_BYTES : kv_block_bytes(head_dim, head_dim);
}

#define ESTIMATE_LISTED 0x80000000u /* the rest of the word is the index of a list */

struct device_estimate {
	struct device_shape shape;
	uint32_t stride; /* 8 or 16 */
	uint32_t block_tokens; /* stride x 8 x a power of two */
	/* tokens; q_pos a multiple of the stride, q_pos + n_q <= n_k rounded up to it */
	uint32_t n_q, q_pos, n_k;
	uint32_t page_tokens;
	uint32_t layer;
	uint32_t pad;
	uint64_t q, q_stride; /* multiples of 16; row i of Q, [query heads][head_dim] */
	/* [squares of n_k] mean keys, so many bytes apart, each [n_kv_heads][head_dim]; the stride
	 * is 8. NULL: all K, in pages */
	const void *means;
	uint64_t means_stride;
	uint64_t pool, pool_bytes, page_bytes;
	/* [n_k / 32, rounded up]: the first KV block, counted in units from the pool's begin, for
	 * layer and head 0; or a list */
	const uint32_t *windows;
	/* [][32]: the KV block of each token; DEVICE_NONE: a token beyond the end */
	const uint32_t *lists;
	void *scratch; /* device_estimate_bytes() of it, at a multiple of 1,024 */
	float *mass; /* [n_kv_heads][blocks of n_q][blocks of n_k] */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch that it takes; 0: it cannot be done. */
uint64_t device_estimate_bytes(const struct device_estimate *estimate);
/* Starts it on the stream. A cudaError_t as int. */
MUST_CHECK int device_estimate(const struct device_estimate *estimate, device_stream stream);

#ifdef __cplusplus
}
#endif

#endif
