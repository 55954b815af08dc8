/*
 * product.c - the matrix product, for one instruction set (isa.h).
 *
 * It keeps a block of TILE_ROWS x TILE_OUTS sums in registers, each a vector of LANES partial sums
 * along the inputs. A smaller block at the edge runs the same operations on each sum that it has,
 * so no sum knows what block it is in.
 *
 *      x rows   | r0 |  ---- k, LANES at a time ---->        w rows   | o0 | ---- k ---->
 *               | r1 |                                                | o1 |
 *                                    sum[r][o] += x[r][k..] * w[o][k..]
 */
#include "isa.h"
#include "lanes.h"

#include "kernels/accesses.h"
#include "proto/arith.h"

#define TILE_OUTS 4
#define BLOCK_BYTES (384u << 10) /* x rows that stay in the second-level cache while w goes by */

#if LANES == 16
#define TILE_ROWS 6
#elif LANES == 8
#define TILE_ROWS 3
#else
#define TILE_ROWS 2
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

/* A block's rows of x, at most TILE_ROWS, and the type of w. */
struct tile_kind {
	enum work_dtype dtype;
	int n_rows;
};

/* One block: rows of x by the TILE_OUTS rows of w at w[]; sums are left in ret. kind is constant
 * wherever this is inlined. */
ALWAYS_INLINE void tile(const struct tile_kind kind, const struct rows_product *p, const float *x,
			const char *const *w, float ret[][TILE_OUTS])
{
	const enum work_dtype dtype = kind.dtype;
	const int n_rows = kind.n_rows;
	const size_t n = p->w->n_in, bytes = dtype == WORK_FP32 ? 4 : 2;
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
		lanes rows[TILE_ROWS];
#pragma GCC unroll 8
		for (int r = 0; r < n_rows; r++)
			rows[r] = load_some(x + r * p->x_stride + k, WORK_FP32, n - k);
#pragma GCC unroll 8
		for (int o = 0; o < TILE_OUTS; o++) {
			const lanes weight = load_some(w[o] + k * bytes, dtype, n - k);
#pragma GCC unroll 8
			for (int r = 0; r < n_rows; r++)
				sums[r][o] = fma_lanes(rows[r], weight, sums[r][o]);
		}
	}
#pragma GCC unroll 8
	for (int r = 0; r < n_rows; r++)
		reduce(sums[r], ret[r]);
}

typedef void tile_fn(const struct rows_product *p, const float *x, const char *const *w,
		     float ret[][TILE_OUTS]);

#define TILE(type, rows) \
	static ACCESSES_TOLD void tile_##type##_##rows(const struct rows_product *p, \
						       const float *x, const char *const *w, \
						       float ret[][TILE_OUTS]) \
	{ \
		tile((struct tile_kind){WORK_##type, rows}, p, x, w, ret); \
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

static ACCESSES_TOLD void store(const struct rows_product *p, uint32_t row, uint32_t out,
				uint32_t n_rows, float sums[][TILE_OUTS])
{
	const uint32_t n_outs =
		p->w->n_out - out < TILE_OUTS ? p->w->n_out - out : (uint32_t)TILE_OUTS;
	for (uint32_t r = 0; r < n_rows; r++) {
		float *y = p->y + (row + r) * p->y_stride + out;
		for (uint32_t o = 0; o < n_outs; o++)
			y[o] = p->add ? y[o] + sums[r][o] : sums[r][o];
	}
}

/* How many of the rows that are left go next: blocks of 4 and 4 take less time than 6 and 2. */
static uint32_t next_rows(uint32_t left)
{
	return ceil_div(left, ceil_div(left, TILE_ROWS));
}

/* Rows [begin, end) of x by all of w. */
static ACCESSES_TOLD void rows_by_all(const struct rows_product *p, uint32_t begin, uint32_t end)
{
	const struct rows_matrix *w = p->w;
	const size_t row_bytes = w->n_in * work_dtype_bytes(w->dtype);
	for (uint32_t out = 0; out < w->n_out; out += TILE_OUTS) {
		const char *at[TILE_OUTS];
		for (uint32_t o = 0; o < TILE_OUTS; o++) {
			/* Past the last row the last one again: its sums are not stored. */
			uint32_t index = out + o < w->n_out ? out + o : w->n_out - 1;
			at[o] = (const char *)w->data + index * row_bytes;
		}
		for (uint32_t row = begin, n; row < end; row += n) {
			n = next_rows(end - row);
			float sums[TILE_ROWS][TILE_OUTS];
			tiles[n - 1][w->dtype](p, p->x + row * p->x_stride, at, sums);
			store(p, row, out, n, sums);
		}
	}
}

static ACCESSES_TOLD void tell(const struct rows_product *p)
{
	size_t row_bytes = p->w->n_in * work_dtype_bytes(p->w->dtype);

	access_aligned(p->x, sizeof(*p->x));
	access_aligned(p->y, sizeof(*p->y));
	access_read(p->w->data, p->w->n_out * row_bytes);
	for (uint32_t row = 0; row < p->n_rows; row++) {
		access_read(p->x + row * p->x_stride, p->w->n_in * sizeof(*p->x));
		access_write(p->y + row * p->y_stride, p->w->n_out * sizeof(*p->y));
	}
}

ACCESSES_TOLD void ROWS_NAME(rows_matmul)(const struct rows_product *p)
{
	if (ACCESSES_ARE_TOLD)
		tell(p);
	uint32_t block = BLOCK_BYTES / (p->w->n_in * sizeof(float)) / TILE_ROWS * TILE_ROWS;
	if (block < TILE_ROWS)
		block = TILE_ROWS;
	for (uint32_t row = 0; row < p->n_rows; row += block)
		rows_by_all(p, row, p->n_rows - row < block ? p->n_rows : row + block);
}
