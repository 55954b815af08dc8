/*
 * lt.h - products of many rows with a matrix, by cuBLASLt, which is looked up at run time: it is
 * not part of the driver, and nobody who runs no programs needs it.
 */
#ifndef COPPICE_CUDA_LT_H
#define COPPICE_CUDA_LT_H

#include "proto/arith.h"
#include "proto/must_check.h"
#include "kernels/work.h"

struct CUstream_st;
struct lt;

#define LT_WORKSPACE_BYTES (UINT64_C(32) << 20)
#define LT_ROWS 256u

/* out[row][o] = sum over i of in[row][i] * w[o][i], in fp32; strides in elements. All on the
 * device. Of several matrices of one size the outputs stand behind each other. There is memory for
 * lt_rows of them, and anything may be left in those behind the last. */
struct lt_product {
	const void *w; /* [n_w][n_out][n_in] of type */
	uint64_t w_stride; /* from a matrix to the next, where there are several: it lies behind */
	uint32_t n_w;
	const void *in; /* [n_rows] of type */
	void *out; /* [n_rows] of out_type */
	uint32_t n_out, n_in, n_rows;
	uint32_t in_stride, out_stride;
	enum work_dtype type; /* WORK_FP16 or WORK_BF16 */
	enum work_dtype out_type; /* the same, or WORK_FP32 */
	bool add; /* out, in fp32, += instead of = */
};

/* So many are multiplied where there are n: of all numbers few, whose ways are soon known. From
 * LT_ROWS on it is a multiple of that, which goes faster than what lies between. */
static inline uint32_t lt_rows(uint32_t n)
{
	uint32_t step = n <= 64 ? 16 : n <= 128 ? 32 : n <= LT_ROWS ? 64 : LT_ROWS;

	return ceil_div(n, step) * step;
}

/* 0; -EOPNOTSUPP and a sentence: it is not installed, or does not start on the device. Blocks. */
MUST_CHECK int lt_open(struct lt **ret, char *why, size_t bytes);
void lt_close(struct lt *lt); /* NULL is fine */

/* Of the current device. workspace: LT_WORKSPACE_BYTES that nothing else on the stream uses
 * meanwhile. 0; -EOPNOTSUPP: there is no way for such a product; -EIO. */
MUST_CHECK int lt_multiply(struct lt *lt, const struct lt_product *product, void *workspace,
			   struct CUstream_st *stream);
/* Finds the way that such a product goes, without doing it. 0 or -EOPNOTSUPP. */
MUST_CHECK int lt_find(struct lt *lt, const struct lt_product *product);

#endif
