/*
 * estimate_pages.h - which blocks of keys a chunk of queries will attend to, from a few of their
 * products: as the CPU's backend estimates it. Q from where a step has it, K from its pages, in
 * fp32 and with the vectors of attention. A row of squares is a query whose dimensions are those of
 * all its tokens.
 *
 *      keys     0 1 2 3 | 4 5 6 7 | ...
 *      query 0  . . . x | . . . x
 *            1  . . x . | . . x .
 *            2  . x . . | . x . .
 *            3  x . . . | x . . .
 *
 * With stride 4, of each square of 4 queries and 4 keys the antidiagonal x alone is multiplied.
 * Its mean is the square's score. A softmax over the squares of a row of squares makes masses of
 * scores, which are summed over blocks of block_tokens x block_tokens and over the query heads of a
 * KV head.
 *
 * (XAttention, arXiv:2503.16428, section 2.1.) As the softmax is over all squares, whatever the
 * blocks, the masses of large blocks are the sums of those of the small ones in them: estimate
 * small, sum, and select large.
 *
 * A square is seen if its first key stands at or before the last query. Tokens beyond the end count
 * as zero vectors.
 */
#ifndef COPPICE_CPU_ESTIMATE_PAGES_H
#define COPPICE_CPU_ESTIMATE_PAGES_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "kernels/plan/array.h"
#include "pool.h"
#include "threads.h"

/* What the backend estimates with. */
struct estimator {
	const struct pool_pages *pages;
	const struct vec *vec;
	struct threads *threads;
	struct array *room; /* for masses; grows, and is kept */
};

/* As backend_ops.estimate; ret_mass is in room. */
MUST_CHECK int estimate_pages(const struct estimator *with, const struct backend_estimate *estimate,
			      const float **ret_mass);

#endif
