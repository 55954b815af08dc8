/* halves.cuh - values of 16 bits, by their type. */
#ifndef COPPICE_CUDA_HALVES_CUH
#define COPPICE_CUDA_HALVES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

#endif
