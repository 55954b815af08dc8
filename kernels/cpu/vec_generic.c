/* vec_generic.c - vectors of 4 floats in the compiler's own terms, for any machine. No fused
 * multiply-add is assumed: products are rounded. */
#include "vec.h"

#include <string.h>

#define VEC_TABLE vec_generic
#define VEC_NAME "generic"
#define LANES 4
#define ROWS_MAX 4
#define FMA_NS 0.1
#define FLUSHES false /* halves are made from subnormal floats */

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));

static inline ACCESSES_TOLD vf vf_load(const float *p)
{
	vf x;

	memcpy(&x, p, sizeof(x));
	return x;
}

static inline ACCESSES_TOLD void vf_store(float *p, vf x)
{
	memcpy(p, &x, sizeof(x));
}

static inline ACCESSES_TOLD vf vf_set1(float x)
{
	return (vf){x, x, x, x};
}

static inline ACCESSES_TOLD vf vf_fma(vf a, vf b, vf c)
{
	return a * b + c;
}

static inline ACCESSES_TOLD vf vf_select(vi on, vf x, vf other)
{
	return (vf)((on & (vi)x) | (~on & (vi)other));
}

/* Of two values one of which is no number: b. */
static inline ACCESSES_TOLD vf vf_max(vf a, vf b)
{
	return vf_select(a > b, a, b);
}

static inline ACCESSES_TOLD float vf_reduce_max(vf x)
{
	float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];

	return a > b ? a : b;
}

static inline ACCESSES_TOLD vf vf_keep(vf x, uint32_t bits, vf other)
{
	vi one = {1, 2, 4, 8}, set = {(int)bits, (int)bits, (int)bits, (int)bits};

	return vf_select((set & one) == one, x, other);
}

/* x where a >= b or where they do not compare, else 0. */
static inline ACCESSES_TOLD vf vf_unless_less(vf x, vf a, vf b)
{
	return (vf)(~(a < b) & (vi)x);
}

/* x * 2^n, n in the low bits of t. */
static inline ACCESSES_TOLD vf vf_scale2(vf x, vf t)
{
	return (vf)((vu)x + ((vu)t << 23));
}

static inline ACCESSES_TOLD vu vu_load_u16(const void *p)
{
	uint16_t x[4];

	memcpy(x, p, sizeof(x));
	return (vu){x[0], x[1], x[2], x[3]};
}

/* The exponent is moved by a product, which also makes subnormals normal; all ones stays all
 * ones. */
static inline ACCESSES_TOLD vf vf_load_fp16(const void *p)
{
	vu x = vu_load_u16(p), magnitude = (x & 0x7fff) << 13;
	vu special = (vu)((x & 0x7c00) == 0x7c00) & 0x7f800000;

	return (vf)((vu)((vf)magnitude * 0x1p112f) | special | (x & 0x8000) << 16);
}

static inline ACCESSES_TOLD vf vf_load_bf16(const void *p)
{
	return (vf)(vu_load_u16(p) << 16);
}

static inline ACCESSES_TOLD void vf_load_bf16_pair(const void *p, vf *ret_a, vf *ret_b)
{
	vu x;

	memcpy(&x, p, sizeof(x));
	*ret_a = (vf)(x << 16);
	*ret_b = (vf)(x & 0xffff0000);
}

static inline ACCESSES_TOLD void vf_store_fp16(void *p, vf x)
{
	_Float16 h[4] = {(_Float16)x[0], (_Float16)x[1], (_Float16)x[2], (_Float16)x[3]};

	memcpy(p, h, sizeof(h));
}

#include "vec_kernels.h"
