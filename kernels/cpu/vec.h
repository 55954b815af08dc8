/*
 * vec.h - the arithmetic of attention on blocks of rows, in one table per instruction set.
 *
 * One source (vec_kernels.h) is compiled for each instruction set; vec_select takes the best that
 * the machine has. A *row* here is one query head of one token. Whatever rows are handed over
 * together, the operations on one row and their order are the same, so that its bits do not depend
 * on the others.
 *
 * Lines of pages (K: the keys of one dimension, V: the dimensions of one key) are stored in the
 * order that vec_place gives, in which widening bf16 costs one operation per vector.
 */
#ifndef COPPICE_CPU_VEC_H
#define COPPICE_CPU_VEC_H

#include "kernels/accesses.h"
#include "kernels/work.h"

#include <stdbool.h>

#define VEC_BLOCK 12u /* rows handed over together, at most; stride of packed Q */
#define VEC_LANES_MAX 16u /* partial sums of a row */

/* s[r * WORK_TILE_TOKENS + j] = q[r] . k[j] for n_keys keys, summed over dimensions in ascending
 * order. n_keys is a multiple of 16, and of 2 * lanes but for the end of a line. */
struct vec_score {
	const float *q; /* [head_dim][VEC_BLOCK], scaled */
	const void *k; /* line of dimension 0, at the first key */
	float *s; /* [n_rows][WORK_TILE_TOKENS] */
	uint32_t n_rows;
	uint32_t n_keys;
	uint32_t head_dim;
	uint32_t page_tokens;
};

/* Scores become weights 2^(s - max); lanes whose bit of mask is clear become exactly 0, whatever
 * stood there. */
struct vec_softmax {
	float *s; /* [n_rows][WORK_TILE_TOKENS] */
	const uint64_t *mask; /* [n_rows] */
	float *max; /* [n_rows] running maximum */
	float *sum; /* [n_rows][VEC_LANES_MAX] running sums, one a lane */
	/* out, [n_rows] what earlier sums and outputs were multiplied with; VEC_BLOCK long */
	float *shrink;
	uint32_t n_rows;
};

/* V of count consecutive keys; their weights stand at s[lane]. */
struct vec_span {
	const char *v;
	uint32_t lane;
	uint32_t count;
};

/* o[r] = o[r] * shrink[r] + sum of weights x V over the keys of the spans, in order. */
struct vec_values {
	const float *s; /* [n_rows][WORK_TILE_TOKENS] */
	const float *shrink; /* [n_rows] */
	const struct vec_span *spans;
	float *o; /* [n_rows][head_dim] */
	uint32_t n_spans;
	uint32_t n_rows;
	uint32_t head_dim;
};

struct vec {
	const char *name;
	uint32_t lanes; /* fp32 values in a vector */
	bool flushes; /* nothing in it needs subnormal floats, which may be 0 */
	double fma_ns; /* one row, one key or value element; see backend_cpu.c */
	/* by enum work_dtype */
	void (*score[3])(const struct vec_score *a);
	void (*values[3])(const struct vec_values *a);
	void (*widen[3])(float *to, const void *from, uint32_t n, float scale);
	void (*narrow[3])(void *to, const float *from, uint32_t n, float scale);
	void (*softmax)(const struct vec_softmax *a);
	/* y[i] = 2^x[i] for x <= 0, and 0 below -126; n is a multiple of 16. At most 2 ulp off. */
	void (*exp2)(float *y, const float *x, uint32_t n);
};

/* The best that the machine has, or the one that the environment's COPPICE_CPU_ISA names (generic,
 * avx2, avx512); NULL where the machine does not have that one, or nobody does. */
const struct vec *vec_select(const char *forced);

extern const struct vec vec_generic;
#ifdef __x86_64__
extern const struct vec vec_avx2;
extern const struct vec vec_avx512;
#endif

/* Where value i of a line of n is stored: halves of a pair of bf16 vectors are interleaved. */
static inline uint32_t vec_place(uint32_t lanes, enum work_dtype dtype, uint32_t n, uint32_t i)
{
	uint32_t pair = i / (2 * lanes) * (2 * lanes), j = i - pair;

	if (dtype != WORK_BF16 || pair + 2 * lanes > n)
		return i;
	return pair + (j < lanes ? 2 * j : 2 * (j - lanes) + 1);
}

#endif
