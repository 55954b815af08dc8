/*
 * oracle.h - attention in float64 straight from a tree, one row at a time, and the values it is fed
 * with.
 *
 * Knows pages and trees, but no list, no tile and no backend: what a kernel computes is compared
 * with it.
 */
#ifndef COPPICE_TESTS_ORACLE_H
#define COPPICE_TESTS_ORACLE_H

#include "kernels/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* K and V of one layer as the model's dtype holds them: [page * page_tokens +
 * row][n_kv_heads][head_dim]. */
struct oracle_kv {
	const struct work_shape *shape;
	float *k; /* owned */
	float *v; /* owned */
	uint32_t n_pages;
	/* Variants. Scores become cap x tanh(score / cap), 0: they do not; all rows see one more
	 * key, of no value, whose scores these are, [n_q_heads], borrowed, NULL: none. */
	double cap;
	const double *sinks;
};

/* All values NaN. 0 or -ENOMEM. */
int oracle_kv_init(struct oracle_kv *kv, const struct work_shape *shape, uint32_t n_pages);
void oracle_kv_done(struct oracle_kv *kv);
size_t oracle_kv_row(const struct oracle_kv *kv, uint32_t page,
		     uint32_t row); /* index of its first value */

/* One row of one query. q, ret_o: [n_q_heads][head_dim]; ret_lse: [n_q_heads]. */
void oracle_row(const struct oracle_kv *kv, const struct work_tree *tree, uint32_t query,
		uint32_t token, const float *q, double *ret_o, double *ret_lse);

/* n values to and from a dtype; to nearest, ties to even. */
void oracle_encode(enum work_dtype dtype, void *to, const float *from, size_t n);
void oracle_decode(enum work_dtype dtype, float *to, const void *from, size_t n);

/* The sum of n products, in float64. */
double oracle_dot(const float *a, const float *b, size_t n);

/* y += x w^T in float64: rows behind each other, but for those of y. In which order a sum is made
 * follows from n_in alone. */
struct oracle_product {
	const double *x; /* [n_rows][n_in] */
	const float *w; /* [n_out][n_in] */
	double *y; /* [n_rows][y_stride], n_out of them */
	size_t y_stride;
	uint32_t n_rows, n_out, n_in;
};
void oracle_multiply(const struct oracle_product *p);

/* xorshift64*; the state is never 0. */
struct oracle_random {
	uint64_t state;
};

uint32_t oracle_below(struct oracle_random *random, uint32_t n); /* 0 to n - 1 */
float oracle_normal(struct oracle_random *random); /* about normal, |x| < 6 */

/* COPPICE_SEED or the clock; printed with the name. */
struct oracle_random oracle_seed(const char *name);

#endif
