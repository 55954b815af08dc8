/*
 * linear.h - products of many rows with one to three matrices, their outputs behind each other, cut
 * into units of some outputs, whose weights are read once for all rows. Where even a few outputs of
 * all rows would take long, a unit is of some rows.
 */
#ifndef COPPICE_CPU_LINEAR_H
#define COPPICE_CPU_LINEAR_H

#include "kernels/rows/rows.h"

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
	/* linear_cut's */
	uint32_t n_outs, unit_outs, unit_rows, n_units;
	bool alone; /* a worker would not be awake before it is done */
};

void linear_cut(struct linear *linear, uint32_t n_threads);
/* One of n_units, in any order. */
void linear_unit(const struct linear *linear, uint32_t thread, uint32_t unit);

#endif
