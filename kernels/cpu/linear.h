/*
 * linear.h - products of many rows with one to three matrices, their outputs behind each other,
 * dealt out to threads by outputs: each weight is read once for all rows.
 */
#ifndef COPPICE_CPU_LINEAR_H
#define COPPICE_CPU_LINEAR_H

#include "kernels/rows/rows.h"
#include "threads.h"

#define LINEAR_GATE_OUTS 64u /* of a gate, that a thread has room for */

struct linear {
	const struct rows_ops *rows;
	const float *x; /* [n_rows], x_stride apart */
	size_t x_stride, y_stride;
	uint32_t n_rows;
	uint32_t n_w;
	struct rows_matrix w[3];
	const float *bias[3]; /* NULL: none */
	float *y;
	bool add; /* y += instead of = */
	bool gated; /* y is act(g) * u, of the two halves of all outputs */
	enum rows_act act;
	float *gates; /* where gated: [threads][2][n_rows][LINEAR_GATE_OUTS] */
};

void linear_run(const struct linear *linear, struct threads *threads);

#endif
