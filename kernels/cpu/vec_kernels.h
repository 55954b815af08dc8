/*
 * vec_kernels.h - the vector kernels, written once. The including file has defined vf (LANES
 * floats), its primitives, ROWS_MAX (rows whose sums of two vectors fit the registers), VEC_TABLE,
 * VEC_NAME and FMA_NS.
 *
 * Both products keep a block of R rows x N vectors of sums in registers and walk along d (scores)
 * or along the keys (values); each step loads N vectors and multiplies them with R broadcast
 * scalars. A sum is one chain of fused multiply-adds in ascending order whatever R and N are.
 *
 * What score, values and softmax touch is their thread's own, but for K and V: fold.c tells of
 * these (accesses.h), they of the rest.
 */
#ifndef COPPICE_CPU_VEC_KERNELS_H
#define COPPICE_CPU_VEC_KERNELS_H

#define KERNEL static inline ACCESSES_TOLD __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define TILE WORK_TILE_TOKENS
#define AHEAD_BYTES (16u << 10)

struct sums {
	vf v[ROWS_MAX][8];
};

/* What is summed in registers at a time: rows from row on, and n vectors from at on, which is a key
 * or a dimension. How many they are is known to the compiler. */
struct sum_block {
	unsigned rows, n;
	unsigned row, at;
};

KERNEL void load_line(enum work_dtype dtype, unsigned n, const char *p, vf *ret)
{
	if (dtype == WORK_BF16 && n > 1) {
		UNROLL
		for (unsigned i = 0; i < n; i += 2)
			vf_load_bf16_pair(p + i * LANES * 2, &ret[i], &ret[i + 1]);
		return;
	}
	UNROLL
	for (unsigned i = 0; i < n; i++) {
		if (dtype == WORK_FP32)
			ret[i] = vf_load((const float *)p + i * LANES);
		else if (dtype == WORK_FP16)
			ret[i] = vf_load_fp16(p + i * LANES * 2);
		else
			ret[i] = vf_load_bf16(p + i * LANES * 2);
	}
}

/* Brings the lines nearer that n vectors will take AHEAD_BYTES further on: V follows K, and the
 * next head's K follows V. That far the hardware's own prefetch does not look, as it stops at 4
 * KiB, and twice that would leave the first-level cache again (measured: 4 to 32 KiB). Beyond what
 * is mapped it does nothing. */
KERNEL void fetch_line(enum work_dtype dtype, unsigned n, const char *p)
{
	UNROLL
	for (unsigned i = 0; i * 64 < n * LANES * work_dtype_bytes(dtype); i++)
		__builtin_prefetch((const void *)((uintptr_t)p + AHEAD_BYTES + i * 64), 0, 3);
}

KERNEL void score_block(const struct vec_score *a, enum work_dtype dtype, struct sum_block b)
{
	const unsigned rows = b.rows, n = b.n;
	size_t line_bytes = a->page_tokens * work_dtype_bytes(dtype);
	const char *k = (const char *)a->k + b.at * work_dtype_bytes(dtype);
	const float *q = a->q + b.row;
	float *s = a->s + b.row * TILE + b.at;
	struct sums sum;
	vf line[8];

	UNROLL
	for (unsigned r = 0; r < rows; r++) {
		UNROLL
		for (unsigned i = 0; i < n; i++)
			sum.v[r][i] = vf_set1(0.0f);
	}
	for (unsigned d = 0; d < a->head_dim; d++) {
		load_line(dtype, n, k, line);
		fetch_line(dtype, n, k);
		UNROLL
		for (unsigned r = 0; r < rows; r++) {
			vf x = vf_set1(q[r]);

			UNROLL
			for (unsigned i = 0; i < n; i++)
				sum.v[r][i] = vf_fma(x, line[i], sum.v[r][i]);
		}
		k += line_bytes;
		q += VEC_BLOCK;
	}
	UNROLL
	for (unsigned r = 0; r < rows; r++) {
		UNROLL
		for (unsigned i = 0; i < n; i++)
			vf_store(s + r * TILE + i * LANES, sum.v[r][i]);
	}
}

KERNEL void score_rows(const struct vec_score *a, enum work_dtype dtype, unsigned rows,
		       unsigned row)
{
	unsigned key = 0;

	for (; rows * 4 <= ROWS_MAX * 2 && key + 4 * LANES <= a->n_keys; key += 4 * LANES)
		score_block(a, dtype, (struct sum_block){rows, 4, row, key});
	for (; key + 2 * LANES <= a->n_keys; key += 2 * LANES)
		score_block(a, dtype, (struct sum_block){rows, 2, row, key});
	for (; key < a->n_keys; key += LANES)
		score_block(a, dtype, (struct sum_block){rows, 1, row, key});
}

KERNEL void values_block(const struct vec_values *a, enum work_dtype dtype, struct sum_block b)
{
	const unsigned rows = b.rows, n = b.n;
	size_t line_bytes = a->head_dim * work_dtype_bytes(dtype);
	float *o = a->o + (size_t)b.row * a->head_dim + b.at;
	struct sums sum;
	vf line[8];

	UNROLL
	for (unsigned r = 0; r < rows; r++) {
		UNROLL
		for (unsigned i = 0; i < n; i++)
			sum.v[r][i] = vf_load(o + (size_t)r * a->head_dim + i * LANES) *
				      vf_set1(a->shrink[b.row + r]);
	}
	for (unsigned span = 0; span < a->n_spans; span++) {
		const char *v = a->spans[span].v + b.at * work_dtype_bytes(dtype);
		const float *s = a->s + b.row * TILE + a->spans[span].lane;

		for (unsigned j = a->spans[span].count; j > 0; j--) {
			load_line(dtype, n, v, line);
			fetch_line(dtype, n, v);
			UNROLL
			for (unsigned r = 0; r < rows; r++) {
				vf x = vf_set1(s[r * TILE]);

				UNROLL
				for (unsigned i = 0; i < n; i++)
					sum.v[r][i] = vf_fma(x, line[i], sum.v[r][i]);
			}
			v += line_bytes;
			s++;
		}
	}
	UNROLL
	for (unsigned r = 0; r < rows; r++) {
		UNROLL
		for (unsigned i = 0; i < n; i++)
			vf_store(o + (size_t)r * a->head_dim + i * LANES, sum.v[r][i]);
	}
}

KERNEL void values_rows(const struct vec_values *a, enum work_dtype dtype, unsigned rows,
			unsigned row)
{
	unsigned dim = 0;

	for (; rows * 8 <= ROWS_MAX * 2 && dim + 8 * LANES <= a->head_dim; dim += 8 * LANES)
		values_block(a, dtype, (struct sum_block){rows, 8, row, dim});
	for (; rows * 4 <= ROWS_MAX * 2 && dim + 4 * LANES <= a->head_dim; dim += 4 * LANES)
		values_block(a, dtype, (struct sum_block){rows, 4, row, dim});
	for (; dim + 2 * LANES <= a->head_dim; dim += 2 * LANES)
		values_block(a, dtype, (struct sum_block){rows, 2, row, dim});
	for (; dim < a->head_dim; dim += LANES)
		values_block(a, dtype, (struct sum_block){rows, 1, row, dim});
}

/* Deals n_rows out in blocks of sizes that are known here, so that each has its sums in
 * registers. */
#define EACH_BLOCK(call, a, dtype) \
	do { \
		unsigned row = 0; \
\
		for (; row + ROWS_MAX <= (a)->n_rows; row += ROWS_MAX) \
			call(a, dtype, ROWS_MAX, row); \
		for (; ROWS_MAX > 8 && row + 8 <= (a)->n_rows; row += 8) \
			call(a, dtype, ROWS_MAX > 8 ? 8 : 1, row); \
		for (; row + 4 <= (a)->n_rows; row += 4) \
			call(a, dtype, 4, row); \
		for (; row + 2 <= (a)->n_rows; row += 2) \
			call(a, dtype, 2, row); \
		for (; row < (a)->n_rows; row++) \
			call(a, dtype, 1, row); \
	} while (0)

KERNEL void score_of(const struct vec_score *a, enum work_dtype dtype)
{
	access_aligned(a->q, sizeof(*a->q));
	access_aligned(a->s, sizeof(*a->s));
	access_own_read(a->q, ((a->head_dim - 1) * VEC_BLOCK + a->n_rows) * sizeof(*a->q));
	access_own_write(a->s, ((a->n_rows - 1) * TILE + a->n_keys) * sizeof(*a->s));
	EACH_BLOCK(score_rows, a, dtype);
}

static ACCESSES_TOLD void score_fp32(const struct vec_score *a)
{
	score_of(a, WORK_FP32);
}

static ACCESSES_TOLD void score_fp16(const struct vec_score *a)
{
	score_of(a, WORK_FP16);
}

static ACCESSES_TOLD void score_bf16(const struct vec_score *a)
{
	score_of(a, WORK_BF16);
}

KERNEL void tell_values(const struct vec_values *a)
{
	access_aligned(a->s, sizeof(*a->s));
	access_aligned(a->o, sizeof(*a->o));
	access_aligned(a->shrink, sizeof(*a->shrink));
	access_aligned(a->spans, sizeof(*a->spans));
	access_own_read(a->shrink, a->n_rows * sizeof(*a->shrink));
	access_own_read(a->spans, a->n_spans * sizeof(*a->spans));
	access_own_write(a->o, (size_t)a->n_rows * a->head_dim * sizeof(*a->o));
	if (a->n_spans) {
		const struct vec_span *last = &a->spans[a->n_spans - 1];

		access_own_read(a->s, ((a->n_rows - 1) * TILE + last->lane + last->count) *
					      sizeof(*a->s));
	}
}

KERNEL void values_of(const struct vec_values *a, enum work_dtype dtype)
{
	if (ACCESSES_ARE_TOLD)
		tell_values(a);
	EACH_BLOCK(values_rows, a, dtype);
}

static ACCESSES_TOLD void values_fp32(const struct vec_values *a)
{
	values_of(a, WORK_FP32);
}

static ACCESSES_TOLD void values_fp16(const struct vec_values *a)
{
	values_of(a, WORK_FP16);
}

static ACCESSES_TOLD void values_bf16(const struct vec_values *a)
{
	values_of(a, WORK_BF16);
}

/*
 * 2^x for x <= 0. x = n + f with n the nearest integer, |f| <= 1/2: adding 1.5 * 2^23 rounds to n
 * and leaves n in the low bits. 2^f is 1 + f * p(f), p of degree 5 through the Chebyshev points of
 * (2^f - 1) / f, off by at most 5.1e-9 of the result; rounding in the last two operations makes it
 * 1.5 ulp at most. 2^0 is exactly 1. Below -126 the result would be subnormal, and nothing beside
 * the 2^0 of the row's maximum: it is 0.
 */
KERNEL vf vf_exp2(vf x)
{
	vf least = vf_set1(-126.0f), round = vf_set1(0x1.8p23f);
	vf y = vf_max(least, x), t = y + round, f = y - (t - round);
	vf p = vf_set1(1.545316295e-04f);

	p = vf_fma(p, f, vf_set1(1.339086336e-03f));
	p = vf_fma(p, f, vf_set1(9.618082557e-03f));
	p = vf_fma(p, f, vf_set1(5.550357114e-02f));
	p = vf_fma(p, f, vf_set1(2.402265076e-01f));
	p = vf_fma(p, f, vf_set1(6.931471880e-01f));
	p = vf_fma(p, f, vf_set1(1.0f));
	return vf_unless_less(vf_scale2(p, t), x, least);
}

static ACCESSES_TOLD void vec_exp2(float *y, const float *x, uint32_t n)
{
	access_aligned(x, sizeof(*x));
	access_aligned(y, sizeof(*y));
	access_read(x, n * sizeof(*x));
	access_write(y, n * sizeof(*y));
	for (uint32_t i = 0; i < n; i += LANES)
		vf_store(y + i, vf_exp2(vf_load(x + i)));
}

/* A row that has seen nothing but -inf keeps the maximum -inf, weights of 0 and the factor 0. */
static inline ACCESSES_TOLD float finite_or_0(float max)
{
	return max == -__builtin_inff() ? 0.0f : max;
}

KERNEL float row_max(const float *s, uint64_t mask, float before)
{
	vf none = vf_set1(-__builtin_inff()), max = vf_set1(before);

	UNROLL
	for (unsigned i = 0; i < TILE; i += LANES)
		max = vf_max(max, vf_keep(vf_load(s + i), (uint32_t)(mask >> i), none));
	return vf_reduce_max(max);
}

KERNEL void row_weights(float *s, uint64_t mask, float max, float shrink, float *sum)
{
	vf zero = vf_set1(0.0f), top = vf_set1(max), part[VEC_LANES_MAX / LANES];

	UNROLL
	for (unsigned i = 0; i < VEC_LANES_MAX / LANES; i++)
		part[i] = vf_load(sum + i * LANES) * vf_set1(shrink);
	UNROLL
	for (unsigned i = 0; i < TILE / LANES; i++) {
		vf x = vf_exp2(vf_load(s + i * LANES) - top);

		x = vf_keep(x, (uint32_t)(mask >> (i * LANES)), zero);
		vf_store(s + i * LANES, x);
		part[i % (VEC_LANES_MAX / LANES)] += x;
	}
	UNROLL
	for (unsigned i = 0; i < VEC_LANES_MAX / LANES; i++)
		vf_store(sum + i * LANES, part[i]);
}

KERNEL void tell_softmax(const struct vec_softmax *a)
{
	access_aligned(a->mask, sizeof(*a->mask));
	access_aligned(a->s, sizeof(*a->s));
	access_aligned(a->max, sizeof(*a->max));
	access_aligned(a->sum, sizeof(*a->sum));
	access_aligned(a->shrink, sizeof(*a->shrink));
	access_own_read(a->mask, a->n_rows * sizeof(*a->mask));
	access_own_write(a->s, a->n_rows * TILE * sizeof(*a->s));
	access_own_write(a->max, a->n_rows * sizeof(*a->max));
	access_own_write(a->sum, a->n_rows * VEC_LANES_MAX * sizeof(*a->sum));
	access_own_write(a->shrink, a->n_rows * sizeof(*a->shrink));
}

static ACCESSES_TOLD void softmax(const struct vec_softmax *a)
{
	float change[VEC_LANES_MAX] = {0};

	tell_softmax(a);

	for (unsigned r = 0; r < a->n_rows; r++) {
		float max = row_max(a->s + r * TILE, a->mask[r], a->max[r]);

		change[r] = a->max[r] - finite_or_0(max);
		a->max[r] = max;
	}
	vec_exp2(change, change, VEC_LANES_MAX);
	for (unsigned r = 0; r < a->n_rows; r++) {
		a->shrink[r] = change[r];
		row_weights(a->s + r * TILE, a->mask[r], finite_or_0(a->max[r]), change[r],
			    a->sum + r * VEC_LANES_MAX);
	}
}

KERNEL void tell(void *to, enum work_dtype to_dtype, const void *from, enum work_dtype dtype,
		 uint32_t n)
{
	access_aligned(from, work_dtype_bytes(dtype));
	access_aligned(to, work_dtype_bytes(to_dtype));
	access_read(from, n * work_dtype_bytes(dtype));
	access_write(to, n * work_dtype_bytes(to_dtype));
}

KERNEL void widen(float *to, const void *from, uint32_t n, float scale, enum work_dtype dtype)
{
	vf line[8];

	tell(to, WORK_FP32, from, dtype, n);
	for (uint32_t i = 0; i < n; i += LANES) {
		load_line(dtype, 1, (const char *)from + i * work_dtype_bytes(dtype), line);
		vf_store(to + i, line[0] * vf_set1(scale));
	}
}

static ACCESSES_TOLD void widen_fp32(float *to, const void *from, uint32_t n, float scale)
{
	widen(to, from, n, scale, WORK_FP32);
}

static ACCESSES_TOLD void widen_fp16(float *to, const void *from, uint32_t n, float scale)
{
	widen(to, from, n, scale, WORK_FP16);
}

static ACCESSES_TOLD void widen_bf16(float *to, const void *from, uint32_t n, float scale)
{
	widen(to, from, n, scale, WORK_BF16);
}

static ACCESSES_TOLD void narrow_fp32(void *to, const float *from, uint32_t n, float scale)
{
	tell(to, WORK_FP32, from, WORK_FP32, n);
	for (uint32_t i = 0; i < n; i += LANES)
		vf_store((float *)to + i, vf_load(from + i) * vf_set1(scale));
}

static ACCESSES_TOLD void narrow_fp16(void *to, const float *from, uint32_t n, float scale)
{
	tell(to, WORK_FP16, from, WORK_FP32, n);
	for (uint32_t i = 0; i < n; i += LANES)
		vf_store_fp16((char *)to + i * 2, vf_load(from + i) * vf_set1(scale));
}

/* To nearest, ties to even; what is no number stays so. */
static ACCESSES_TOLD void narrow_bf16(void *to, const float *from, uint32_t n, float scale)
{
	uint16_t *out = to;

	tell(to, WORK_BF16, from, WORK_FP32, n);
	for (uint32_t i = 0; i < n; i++) {
		float x = from[i] * scale;
		uint32_t bits;

		__builtin_memcpy(&bits, &x, sizeof(bits));
		bits += x == x ? 0x7fff + (bits >> 16 & 1) : 0;
		out[i] = (uint16_t)(bits >> 16 | (x == x ? 0 : 0x40));
	}
}

const struct vec VEC_TABLE = {
	.name = VEC_NAME,
	.lanes = LANES,
	.flushes = FLUSHES,
	.fma_ns = FMA_NS,
	.score = {score_fp32, score_fp16, score_bf16},
	.values = {values_fp32, values_fp16, values_bf16},
	.widen = {widen_fp32, widen_fp16, widen_bf16},
	.narrow = {narrow_fp32, narrow_fp16, narrow_bf16},
	.softmax = softmax,
	.exp2 = vec_exp2,
};

#endif
