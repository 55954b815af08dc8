/*
 * isa.h - the functions that are compiled once for each instruction set: ROWS_ISA names it, and the
 * compiler's -m flags select it.
 */
#ifndef COPPICE_ROWS_ISA_H
#define COPPICE_ROWS_ISA_H

#include "rows.h"

#define ROWS_NAME(function) ROWS_NAME_OF(function, ROWS_ISA)
#define ROWS_NAME_OF(function, isa) ROWS_PASTE(function, isa)
#define ROWS_PASTE(function, isa) function##_##isa

#define ROWS_DECLARE(isa) \
	void rows_matmul_##isa(const struct rows_product *p); \
	void rows_rmsnorm_##isa(float *y, const float *x, const float *weight, uint32_t n, \
				float eps); \
	void rows_gate_##isa(enum rows_act act, float *gate, const float *up, uint32_t n); \
	void rows_add_##isa(float *y, const float *x, size_t n); \
	void rows_scale_##isa(float *y, float factor, size_t n); \
	void rows_narrow_##isa(void *to, enum work_dtype dtype, const float *from, size_t n); \
	void rows_widen_##isa(float *to, const void *from, enum work_dtype dtype, size_t n); \
	double rows_log_sum_##isa(const float *x, uint32_t n); \
	uint32_t rows_likeliest_##isa(struct rows_score *ret, uint32_t n_top, const float *x, \
				      uint32_t n);

ROWS_DECLARE(generic)
#if defined(__x86_64__)
ROWS_DECLARE(avx2)
ROWS_DECLARE(avx512)
#endif

#endif
