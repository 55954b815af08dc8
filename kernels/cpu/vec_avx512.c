/* vec_avx512.c - vectors of 16 floats: AVX-512 F, BW, VL, DQ. 32 registers hold 12 rows x 2 vectors
 * of sums. */
#include "vec.h"

#ifdef __x86_64__
#include <immintrin.h>

#define VEC_TABLE vec_avx512
#define VEC_NAME "avx512"
#define LANES 16
#define ROWS_MAX 12
#define FMA_NS 0.012
#define FLUSHES true

typedef __m512 vf;

static inline ACCESSES_TOLD vf vf_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

static inline ACCESSES_TOLD void vf_store(float *p, vf x)
{
	_mm512_storeu_ps(p, x);
}

static inline ACCESSES_TOLD vf vf_set1(float x)
{
	return _mm512_set1_ps(x);
}

static inline ACCESSES_TOLD vf vf_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

/* Of two values one of which is no number: b. */
static inline ACCESSES_TOLD vf vf_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

static inline ACCESSES_TOLD float vf_reduce_max(vf x)
{
	return _mm512_reduce_max_ps(x);
}

static inline ACCESSES_TOLD vf vf_keep(vf x, uint32_t bits, vf other)
{
	return _mm512_mask_mov_ps(other, (__mmask16)bits, x);
}

/* x where a >= b or where they do not compare, else 0. */
static inline ACCESSES_TOLD vf vf_unless_less(vf x, vf a, vf b)
{
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
}

/* x * 2^n, n in the low bits of t. */
static inline ACCESSES_TOLD vf vf_scale2(vf x, vf t)
{
	__m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);

	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
}

static inline ACCESSES_TOLD vf vf_load_fp16(const void *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline ACCESSES_TOLD vf vf_load_bf16(const void *p)
{
	__m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));

	return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

static inline ACCESSES_TOLD void vf_load_bf16_pair(const void *p, vf *ret_a, vf *ret_b)
{
	__m512i x = _mm512_loadu_si512(p);

	*ret_a = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
	*ret_b = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}

static inline ACCESSES_TOLD void vf_store_fp16(void *p, vf x)
{
	_mm256_storeu_si256(p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "vec_kernels.h"
#endif
