/* arith.h - the small arithmetic that everybody needs, for the host and for kernels: once. */
#ifndef COPPICE_ARITH_H
#define COPPICE_ARITH_H

#include <stdint.h>

#ifdef __CUDACC__
#define ARITH_INLINE __host__ __device__ static inline
#else
#define ARITH_INLINE static inline
#endif

ARITH_INLINE uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

ARITH_INLINE uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

ARITH_INLINE uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

ARITH_INLINE uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* How many of `of` n takes, the last one perhaps in part; of is not 0. No sum that could
 * overflow. */
ARITH_INLINE uint32_t ceil_div(uint32_t n, uint32_t of)
{
	return n / of + (n % of > 0);
}

ARITH_INLINE uint64_t ceil_div_u64(uint64_t n, uint64_t of)
{
	return n / of + (n % of > 0);
}

/* The next multiple of `of`. */
ARITH_INLINE uint64_t round_up(uint64_t n, uint64_t of)
{
	return ceil_div_u64(n, of) * of;
}

/* The same of a power of two. */
ARITH_INLINE uint64_t align_to(uint64_t n, uint64_t of)
{
	return (n + of - 1) & ~(of - 1);
}

#endif
