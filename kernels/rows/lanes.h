/*
 * lanes.h - a vector of LANES floats in the instruction set that is compiled for, and how elements
 * of each type become one.
 */
#ifndef COPPICE_ROWS_LANES_H
#define COPPICE_ROWS_LANES_H

#include "kernels/work.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define LANES 16
typedef __m512 lanes;

ALWAYS_INLINE lanes load_fp32(const void *from)
{
	return _mm512_loadu_ps(from);
}

ALWAYS_INLINE lanes load_bf16(const void *from)
{
	__m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from));
	return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

ALWAYS_INLINE lanes load_fp16(const void *from)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}

ALWAYS_INLINE lanes fma_lanes(lanes a, lanes b, lanes sum)
{
	return _mm512_fmadd_ps(a, b, sum);
}
#elif defined(__AVX2__)
#define LANES 8
typedef __m256 lanes;

ALWAYS_INLINE lanes load_fp32(const void *from)
{
	return _mm256_loadu_ps(from);
}

ALWAYS_INLINE lanes load_bf16(const void *from)
{
	__m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
	return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

ALWAYS_INLINE lanes load_fp16(const void *from)
{
	return _mm256_cvtph_ps(_mm_loadu_si128(from));
}

ALWAYS_INLINE lanes fma_lanes(lanes a, lanes b, lanes sum)
{
	return _mm256_fmadd_ps(a, b, sum);
}
#else
#define LANES 4
typedef float lanes __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(8)));
typedef uint32_t words __attribute__((vector_size(16)));

ALWAYS_INLINE lanes load_fp32(const void *from)
{
	lanes value;
	memcpy(&value, from, sizeof(value));
	return value;
}

ALWAYS_INLINE words load_halves(const void *from)
{
	halves narrow;
	memcpy(&narrow, from, sizeof(narrow));
	return __builtin_convertvector(narrow, words);
}

ALWAYS_INLINE lanes load_bf16(const void *from)
{
	return (lanes)(load_halves(from) << 16);
}

/* The exponent is moved to fp32's place and 2^112 makes up for the bias; infinities and NaNs get
 * the exponent of theirs. */
ALWAYS_INLINE lanes load_fp16(const void *from)
{
	const words wide = load_halves(from), magnitude = (wide & 0x7fff) << 13;
	const words special = (words)(magnitude >= 0x7c00u << 13) & 0x7f800000;
	const lanes value = (lanes)magnitude * 0x1p112f;
	return (lanes)((words)value | special | (wide & 0x8000) << 16);
}

ALWAYS_INLINE lanes fma_lanes(lanes a, lanes b, lanes sum)
{
	return a * b + sum;
}
#endif

ALWAYS_INLINE lanes load(const void *from, enum work_dtype dtype)
{
	if (dtype == WORK_BF16)
		return load_bf16(from);
	return dtype == WORK_FP16 ? load_fp16(from) : load_fp32(from);
}

/* The last n < LANES elements, zeros behind them. */
ALWAYS_INLINE lanes load_some(const void *from, enum work_dtype dtype, size_t n)
{
	char padded[LANES * 4] = {0};
	memcpy(padded, from, n * (dtype == WORK_FP32 ? 4 : 2));
	return load(padded, dtype);
}

#endif
