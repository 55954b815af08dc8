/* halves.cuh - values of 16 bits, by their type. */
#ifndef COPPICE_CUDA_HALVES_CUH
#define COPPICE_CUDA_HALVES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

__device__ inline float value_of(__half x)
{
	return __half2float(x);
}

__device__ inline float value_of(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

template <typename TYPE> __device__ inline TYPE type_of(float x);
template <> __device__ inline __half type_of(float x)
{
	return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 type_of(float x)
{
	return __float2bfloat16_rn(x);
}

/* Two values: is one of them infinite or NaN? */
__device__ inline bool not_finite(uint32_t two, bool bf16)
{
	uint32_t exponent = bf16 ? 0x7f80u : 0x7c00u;

	return (two & exponent) == exponent || (two >> 16 & exponent) == exponent;
}

__device__ inline bool not_finite(const uint4 &v, bool bf16)
{
	return not_finite(v.x, bf16) || not_finite(v.y, bf16) || not_finite(v.z, bf16) ||
	       not_finite(v.w, bf16);
}

#endif
