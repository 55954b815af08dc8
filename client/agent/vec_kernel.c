/*
 * vec_kernel.c - the functions of vec.h for one instruction set: VEC_ISA names it, the compiler's
 * -m flags select it.
 *
 * The matrix product keeps a block of TILE_ROWS x TILE_OUTS sums in registers, each a vector of
 * LANES partial sums along the inputs. A smaller block at the edge runs the same operations on each
 * sum that it has, so no sum knows what block it is in.
 *
 *      x rows   | r0 |  ---- k, LANES at a time ---->        w rows   | o0 | ---- k ---->
 *               | r1 |                                                | o1 |
 *                                    sum[r][o] += x[r][k..] * w[o][k..]
 */
#include "vec_kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define TILE_OUTS 4
#define BLOCK_BYTES (384u << 10) /* x rows that stay in the second-level cache while w goes by */

#if defined(__AVX512F__)
#define LANES 16
#define TILE_ROWS 6
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
#define TILE_ROWS 3
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
#define TILE_ROWS 2
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

/* The sums of four vectors' lanes; what lies in one does not touch another's result. */
ALWAYS_INLINE void reduce(const lanes sums[TILE_OUTS], float ret[TILE_OUTS])
{
#if defined(__AVX2__)
	__m256 half[TILE_OUTS];
	for (int o = 0; o < TILE_OUTS; o++) {
#if defined(__AVX512F__)
		half[o] = _mm256_add_ps(_mm512_castps512_ps256(sums[o]),
					_mm512_extractf32x8_ps(sums[o], 1));
#else
		half[o] = sums[o];
#endif
	}
	__m256 pairs =
		_mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]), _mm256_hadd_ps(half[2], half[3]));
	_mm_storeu_ps(ret,
		      _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
#else
	for (int o = 0; o < TILE_OUTS; o++)
		ret[o] = (sums[o][0] + sums[o][2]) + (sums[o][1] + sums[o][3]);
#endif
}

ALWAYS_INLINE lanes load(const void *from, enum coppice_dtype dtype)
{
	if (dtype == COPPICE_BF16)
		return load_bf16(from);
	return dtype == COPPICE_FP16 ? load_fp16(from) : load_fp32(from);
}

/* The last n < LANES elements, zeros behind them. */
ALWAYS_INLINE lanes load_some(const void *from, enum coppice_dtype dtype, size_t n)
{
	char padded[LANES * 4] = {0};
	memcpy(padded, from, n * (dtype == COPPICE_FP32 ? 4 : 2));
	return load(padded, dtype);
}

/* A block's rows of x, at most TILE_ROWS, and the type of w. */
struct tile_kind {
	enum coppice_dtype dtype;
	int n_rows;
};

/* One block: rows of x by the TILE_OUTS rows of w at w[]; sums are left in ret. kind is constant
 * wherever this is inlined. */
ALWAYS_INLINE void tile(const struct tile_kind kind, const struct vec_product *p, const float *x,
			const char *const *w, float ret[][TILE_OUTS])
{
	const enum coppice_dtype dtype = kind.dtype;
	const int n_rows = kind.n_rows;
	const size_t n = p->w->n_in, bytes = dtype == COPPICE_FP32 ? 4 : 2;
	lanes sums[TILE_ROWS][TILE_OUTS];
	size_t k = 0;
	memset(sums, 0, sizeof(sums));
	for (; k + LANES <= n; k += LANES) {
		lanes rows[TILE_ROWS];
#pragma GCC unroll 8
		for (int r = 0; r < n_rows; r++)
			rows[r] = load_fp32(x + r * p->x_stride + k);
#pragma GCC unroll 8
		for (int o = 0; o < TILE_OUTS; o++) {
			const lanes weight = load(w[o] + k * bytes, dtype);
#pragma GCC unroll 8
			for (int r = 0; r < n_rows; r++)
				sums[r][o] = fma_lanes(rows[r], weight, sums[r][o]);
		}
	}
	if (k < n) {
#pragma GCC unroll 8
		for (int o = 0; o < TILE_OUTS; o++) {
			const lanes weight = load_some(w[o] + k * bytes, dtype, n - k);
#pragma GCC unroll 8
			for (int r = 0; r < n_rows; r++)
				sums[r][o] = fma_lanes(load_some(x + r * p->x_stride + k,
								 COPPICE_FP32, n - k),
						       weight, sums[r][o]);
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < n_rows; r++)
		reduce(sums[r], ret[r]);
}

typedef void tile_fn(const struct vec_product *p, const float *x, const char *const *w,
		     float ret[][TILE_OUTS]);

#define TILE(type, rows) \
	static void tile_##type##_##rows(const struct vec_product *p, const float *x, \
					 const char *const *w, float ret[][TILE_OUTS]) \
	{ \
		tile((struct tile_kind){COPPICE_##type, rows}, p, x, w, ret); \
	}
#define TILES(rows) TILE(FP32, rows) TILE(FP16, rows) TILE(BF16, rows)
#define TILES_OF(rows) \
	{ \
		tile_FP32_##rows, tile_FP16_##rows, tile_BF16_##rows \
	}

TILES(1)
TILES(2)
#if TILE_ROWS > 2
TILES(3)
#endif
#if TILE_ROWS > 3
TILES(4)
TILES(5)
TILES(6)
#endif

/* By n_rows - 1 and dtype. */
static tile_fn *const tiles[TILE_ROWS][3] = {
	TILES_OF(1), TILES_OF(2),
#if TILE_ROWS > 2
	TILES_OF(3),
#endif
#if TILE_ROWS > 3
	TILES_OF(4), TILES_OF(5), TILES_OF(6),
#endif
};

static void store(const struct vec_product *p, uint32_t row, uint32_t out, uint32_t n_rows,
		  float sums[][TILE_OUTS])
{
	const uint32_t n_outs =
		p->w->n_out - out < TILE_OUTS ? p->w->n_out - out : (uint32_t)TILE_OUTS;
	for (uint32_t r = 0; r < n_rows; r++) {
		float *y = p->y + (row + r) * p->y_stride + out;
		for (uint32_t o = 0; o < n_outs; o++)
			y[o] = p->add ? y[o] + sums[r][o] : sums[r][o];
	}
}

/* Rows [begin, end) of x by all of w. */
static void rows_by_all(const struct vec_product *p, uint32_t begin, uint32_t end)
{
	const struct vec_matrix *w = p->w;
	const size_t row_bytes = w->n_in * vec_dtype_bytes(w->dtype);
	for (uint32_t out = 0; out < w->n_out; out += TILE_OUTS) {
		const char *at[TILE_OUTS];
		for (uint32_t o = 0; o < TILE_OUTS; o++) {
			/* Past the last row the last one again: its sums are not stored. */
			uint32_t index = out + o < w->n_out ? out + o : w->n_out - 1;
			at[o] = (const char *)w->data + index * row_bytes;
		}
		for (uint32_t row = begin; row < end; row += TILE_ROWS) {
			uint32_t n = end - row < TILE_ROWS ? end - row : TILE_ROWS;
			float sums[TILE_ROWS][TILE_OUTS];
			tiles[n - 1][w->dtype](p, p->x + row * p->x_stride, at, sums);
			store(p, row, out, n, sums);
		}
	}
}

static void matmul(const struct vec_product *p)
{
	uint32_t block = BLOCK_BYTES / (p->w->n_in * sizeof(float)) / TILE_ROWS * TILE_ROWS;
	if (block < TILE_ROWS)
		block = TILE_ROWS;
	for (uint32_t row = 0; row < p->n_rows; row += block)
		rows_by_all(p, row, p->n_rows - row < block ? p->n_rows : row + block);
}

static void rmsnorm(float *y, const float *x, const float *weight, uint32_t n, float eps)
{
	float part[16] = {0}, sum = 0;
	uint32_t i = 0;
	for (; i + 16 <= n; i += 16)
		for (uint32_t j = 0; j < 16; j++)
			part[j] += x[i + j] * x[i + j];
	for (; i < n; i++)
		part[i % 16] += x[i] * x[i];
	for (uint32_t j = 0; j < 16; j++)
		sum += part[j];
	const float factor = 1 / sqrtf(sum / n + eps);
	for (i = 0; i < n; i++)
		y[i] = x[i] * factor * weight[i];
}

/* exp(x) to about 2 units in the last place: 2^k times the Taylor series of exp on [-ln 2 / 2, ln 2
 * / 2] (its first omitted term is under 6e-9). x is cut to where 2^k is a normal number. */
ALWAYS_INLINE float exp_series(float x)
{
	x = x < -87.0f ? -87.0f : x;
	x = x > 88.0f ? 88.0f : x;
	const float rounder = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	const float k = (x * 1.44269504f + rounder) - rounder;
	const float r = (x - k * 0.693145752f) - k * 1.42860677e-6f;
	float s = 1.0f / 5040;
	s = s * r + 1.0f / 720;
	s = s * r + 1.0f / 120;
	s = s * r + 1.0f / 24;
	s = s * r + 1.0f / 6;
	s = s * r + 0.5f;
	s = s * r + 1.0f;
	s = s * r + 1.0f;
	const uint32_t bits = (uint32_t)((int32_t)k + 127) << 23;
	float power;
	memcpy(&power, &bits, sizeof(power));
	return s * power;
}

static void swiglu(float *gate, const float *up, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		gate[i] = gate[i] / (1 + exp_series(-gate[i])) * up[i];
}

static void narrow_bf16(uint16_t *restrict to, const float *restrict from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &from[i], sizeof(bits));
		const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
		const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
		to[i] = (is_nan ? bits | 0x400000 : rounded) >> 16;
	}
}

static void narrow(void *to, enum coppice_dtype dtype, const float *from, size_t n)
{
	if (dtype == COPPICE_FP32)
		memcpy(to, from, n * sizeof(float));
	else if (dtype == COPPICE_BF16)
		narrow_bf16(to, from, n);
	else
		for (size_t i = 0; i < n; i++)
			((_Float16 *)to)[i] = (_Float16)from[i];
}

static void widen(float *to, const void *from, enum coppice_dtype dtype, size_t n)
{
	const size_t bytes = vec_dtype_bytes(dtype);
	size_t i = 0;
	for (; i + LANES <= n; i += LANES) {
		const lanes value = load((const char *)from + i * bytes, dtype);
		memcpy(to + i, &value, sizeof(value));
	}
	if (i < n) {
		const lanes value = load_some((const char *)from + i * bytes, dtype, n - i);
		memcpy(to + i, &value, (n - i) * sizeof(float));
	}
}

#define NAME_OF(isa) NAME_OF_(isa)
#define NAME_OF_(isa) vec_ops_##isa
#define TEXT_OF(isa) TEXT_OF_(isa)
#define TEXT_OF_(isa) #isa

const struct vec_ops NAME_OF(VEC_ISA) = {
	.isa = TEXT_OF(VEC_ISA),
	.matmul = matmul,
	.rmsnorm = rmsnorm,
	.swiglu = swiglu,
	.narrow = narrow,
	.widen = widen,
};
