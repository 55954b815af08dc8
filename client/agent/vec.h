/*
 * vec.h - the arithmetic of the forward pass outside attention: matrix products and the
 * element-wise rest.
 *
 * One rule holds for all of it: a row's result has the same bits whatever other rows are computed
 * with it. So a sequence yields the same tokens alone and in any batch, and K and V that one
 * process computed are those that every other would have. Libraries choose the order of a sum by
 * the shape of the product; here each output element is summed in one order: VEC lanes along the
 * inputs, ascending, then the lanes in a fixed tree. (Machines with other vector widths sum in
 * another order.)
 */
#ifndef AGENT_VEC_H
#define AGENT_VEC_H

#include "client/coppice.h"

/* A weight as the file has it: n_out rows of n_in elements of dtype. Any alignment. */
struct vec_matrix {
	const void *data;
	enum coppice_dtype dtype;
	uint32_t n_out, n_in;
};

/* y[row][out] = sum over in of x[row][in] * w[out][in], or += with add. Strides in elements. */
struct vec_product {
	const float *x;
	const struct vec_matrix *w;
	float *y;
	size_t x_stride, y_stride;
	uint32_t n_rows;
	bool add;
};

/* One instruction set's functions. None fails, blocks or allocates. */
struct vec_ops {
	const char *isa;
	void (*matmul)(const struct vec_product *p);
	/* y = x / sqrt(mean(x^2) + eps) * weight, over one row of n. */
	void (*rmsnorm)(float *y, const float *x, const float *weight, uint32_t n, float eps);
	/* gate = gate * sigmoid(gate) * up, over one row of n. */
	void (*swiglu)(float *gate, const float *up, uint32_t n);
	/* n elements from fp32 to dtype (to nearest, ties to even), and back. */
	void (*narrow)(void *to, enum coppice_dtype dtype, const float *from, size_t n);
	void (*widen)(float *to, const void *from, enum coppice_dtype dtype, size_t n);
};

static inline size_t vec_dtype_bytes(enum coppice_dtype dtype)
{
	return dtype == COPPICE_FP32 ? 4 : 2;
}

/* The ops by name ("avx512", "avx2", "baseline"), or the best ones for NULL. NULL where this CPU
 * lacks them. */
const struct vec_ops *vec_ops_select(const char *isa);

#endif
