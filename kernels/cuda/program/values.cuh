/* values.cuh - single values of rows and vectors, in whatever form, and what is done to one. */
#ifndef COPPICE_CUDA_VALUES_CUH
#define COPPICE_CUDA_VALUES_CUH

#include "elements.h"
#include "kernels/cuda/device/halves.cuh"
#include "kernels/cuda/device/ptx.cuh"

__device__ inline float narrow_at(const void *at, bool bf16, uint64_t i)
{
	return bf16 ? value_of(((const __nv_bfloat16 *)at)[i]) : value_of(((const __half *)at)[i]);
}

__device__ inline float vector_at(const struct device_vector &v, uint64_t i)
{
	return v.type == WORK_FP32 ? ((const float *)v.at)[i]
				   : narrow_at(v.at, v.type == WORK_BF16, i);
}

__device__ inline float4 vector_four_at(const struct device_vector &v, uint64_t i)
{
	if (v.type == WORK_FP32)
		return *(const float4 *)((const float *)v.at + i);

	const uint2 four = *(const uint2 *)((const char *)v.at + i * 2);
	const char *at = (const char *)&four;
	bool bf16 = v.type == WORK_BF16;

	return make_float4(narrow_at(at, bf16, 0), narrow_at(at, bf16, 1), narrow_at(at, bf16, 2),
			   narrow_at(at, bf16, 3));
}

__device__ inline void put_narrow(void *at, bool bf16, uint64_t i, float value)
{
	if (bf16)
		((__nv_bfloat16 *)at)[i] = type_of<__nv_bfloat16>(value);
	else
		((__half *)at)[i] = type_of<__half>(value);
}

__device__ inline void put(const struct device_rows &out, uint32_t row, uint32_t i, float value)
{
	if (out.wide) {
		float *at = out.wide + (uint64_t)row * out.wide_stride + i;

		*at = out.add ? *at + value : value;
	}
	if (out.narrow)
		put_narrow(out.narrow, out.bf16, (uint64_t)row * out.narrow_stride + i, value);
}

/* Rows are multiples of four apart. */
inline bool take_fours(const struct device_rows *out)
{
	return out->wide_stride % 4 == 0 && out->narrow_stride % 4 == 0;
}

/* Four values side by side, of rows that take_fours. */
__device__ inline void put_four(const struct device_rows &out, uint32_t row, uint32_t i,
				const float (&values)[4])
{
	if (out.wide) {
		float4 *at = (float4 *)(out.wide + (uint64_t)row * out.wide_stride + i);
		float4 to = make_float4(values[0], values[1], values[2], values[3]);

		if (out.add) {
			float4 before = *at;

			to = make_float4(before.x + to.x, before.y + to.y, before.z + to.z,
					 before.w + to.w);
		}
		*at = to;
	}
	if (out.narrow) {
		char *at = (char *)out.narrow + ((uint64_t)row * out.narrow_stride + i) * 2;

		*(uint2 *)at = out.bf16 ? make_uint2(dtype_bf16::pack(values[0], values[1]),
						     dtype_bf16::pack(values[2], values[3]))
					: make_uint2(dtype_half::pack(values[0], values[1]),
						     dtype_half::pack(values[2], values[3]));
	}
}

/* erfc keeps what 1 + erf would cancel where x is far below 0, a sigmoid what 1 + tanh would. */
__device__ inline float act(uint32_t kind, float x)
{
	if (kind == PROGRAM_SILU)
		return x / (1 + expf(-x));
	if (kind == PROGRAM_GELU)
		return 0.5f * x * erfcf(x * -0.707106781f);
	if (kind == PROGRAM_GELU_TANH)
		return x / (1 + expf(-2 * 0.797884561f * (x + 0.044715f * x * x * x)));
	return x;
}

__device__ inline float inverse_fast(float x)
{
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Within some units in the last place of fp32. */
__device__ inline float silu_gated(float gate, float value)
{
	return gate * inverse_fast(1 + exp2_fast(gate * -1.44269504f)) * value;
}

__device__ inline float4 plus(const float4 &a, const float4 &b)
{
	return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

#endif
