/*
 * rows.h - the arithmetic of a forward pass outside attention: matrix products and the element-wise
 * rest, in one table per instruction set. Used by backends and by coppice-agent.
 *
 * One rule holds for all of it: a row's result has the same bits whatever other rows are computed
 * with it, and a product's output whatever other outputs are. So a sequence yields the same tokens
 * alone and in any batch, and K and V that one process computed are those that every other would
 * have. Libraries choose the order of a sum by the shape of the product; here each output element
 * is summed in one order: a vector's lanes along the inputs, ascending, then the lanes in a fixed
 * tree. (Machines with other vector widths sum in another order.)
 */
#ifndef COPPICE_ROWS_H
#define COPPICE_ROWS_H

#include "kernels/work.h"

/* A weight as the file has it: n_out rows of n_in elements of dtype. Any alignment. */
struct rows_matrix {
	const void *data;
	enum work_dtype dtype;
	uint32_t n_out, n_in;
};

/* y[row][out] = sum over in of x[row][in] * w[out][in], or += with add. Strides in elements. */
struct rows_product {
	const float *x;
	const struct rows_matrix *w;
	float *y;
	size_t x_stride, y_stride;
	uint32_t n_rows;
	bool add;
};

/* Numbered as programs number them. */
enum rows_act { ROWS_NO_ACT, ROWS_SILU, ROWS_GELU, ROWS_GELU_TANH };

struct rows_score {
	uint32_t id;
	float logit;
};

/* One instruction set's functions. None fails, blocks or allocates. */
struct rows_ops {
	const char *isa;
	double fma_ns; /* one row, one element of a matrix, where many rows go by; see rows.c */
	void (*matmul)(const struct rows_product *p);
	/* y = x / sqrt(mean(x^2) + eps) * weight, over one row of n. y may be x. */
	void (*rmsnorm)(float *y, const float *x, const float *weight, uint32_t n, float eps);
	/* gate = act(gate) * up, over one row of n. */
	void (*gate)(enum rows_act act, float *gate, const float *up, uint32_t n);
	/* y += x, y *= factor, over n elements. */
	void (*add)(float *y, const float *x, size_t n);
	void (*scale)(float *y, float factor, size_t n);
	/* n elements from fp32 to dtype (to nearest, ties to even), and back. */
	void (*narrow)(void *to, enum work_dtype dtype, const float *from, size_t n);
	void (*widen)(float *to, const void *from, enum work_dtype dtype, size_t n);
	/* Natural log of the sum of exp(x) over n. */
	double (*log_sum)(const float *x, uint32_t n);
	/* The n_top largest, falling; alike: the lower index first. What is no number is never
	 * among them. Returns how many there are. */
	uint32_t (*likeliest)(struct rows_score *ret, uint32_t n_top, const float *x, uint32_t n);
};

/* Outputs [first, first + n) of w alone. */
static inline struct rows_matrix rows_part(const struct rows_matrix *w, uint32_t first, uint32_t n)
{
	size_t row_bytes = w->n_in * work_dtype_bytes(w->dtype);

	return (struct rows_matrix){(const char *)w->data + first * row_bytes, w->dtype, n,
				    w->n_in};
}

/* The ops by name ("avx512", "avx2", "generic"), or the best ones for NULL. NULL where this CPU
 * lacks them. */
const struct rows_ops *rows_ops_select(const char *isa);

#endif
