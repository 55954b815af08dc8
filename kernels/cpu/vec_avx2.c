/* vec_avx2.c - vectors of 8 floats: AVX2, FMA, F16C. 16 registers hold 6 rows x 2 vectors of
 * sums. */
#include "vec.h"

#ifdef __x86_64__
#include <immintrin.h>

#define VEC_TABLE vec_avx2
#define VEC_NAME "avx2"
#define LANES 8
#define ROWS_MAX 6
#define FMA_NS 0.024
#define FLUSHES true

typedef __m256 vf;

static inline ACCESSES_TOLD vf vf_load(const float *p)
{
	return _mm256_loadu_ps(p);
}

static inline ACCESSES_TOLD void vf_store(float *p, vf x)
{
	_mm256_storeu_ps(p, x);
}

static inline ACCESSES_TOLD vf vf_set1(float x)
{
	return _mm256_set1_ps(x);
}

static inline ACCESSES_TOLD vf vf_fma(vf a, vf b, vf c)
{
	return _mm256_fmadd_ps(a, b, c);
}

/* Of two values one of which is no number: b. */
static inline ACCESSES_TOLD vf vf_max(vf a, vf b)
{
	return _mm256_max_ps(a, b);
}

static inline ACCESSES_TOLD float vf_reduce_max(vf x)
{
	__m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));

	y = _mm_max_ps(y, _mm_movehl_ps(y, y));
	return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

static inline ACCESSES_TOLD vf vf_keep(vf x, uint32_t bits, vf other)
{
	__m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	__m256i on = _mm256_and_si256(_mm256_set1_epi32((int)bits), one);

	return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, one)));
}

/* x where a >= b or where they do not compare, else 0. */
static inline ACCESSES_TOLD vf vf_unless_less(vf x, vf a, vf b)
{
	return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}

/* x * 2^n, n in the low bits of t. */
static inline ACCESSES_TOLD vf vf_scale2(vf x, vf t)
{
	__m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);

	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n));
}

static inline ACCESSES_TOLD vf vf_load_fp16(const void *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline ACCESSES_TOLD vf vf_load_bf16(const void *p)
{
	__m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));

	return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

static inline ACCESSES_TOLD void vf_load_bf16_pair(const void *p, vf *ret_a, vf *ret_b)
{
	__m256i x = _mm256_loadu_si256(p);

	*ret_a = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
	*ret_b = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000)));
}

static inline ACCESSES_TOLD void vf_store_fp16(void *p, vf x)
{
	_mm_storeu_si128(p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "vec_kernels.h"
#endif
