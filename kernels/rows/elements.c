/*
 * elements.c - what is done to a row's elements, for one instruction set (isa.h): norms, gates, and
 * from type to type.
 *
 * Loops are plain, and vectors are the compiler's: each element is computed from its own inputs
 * alone, and a sum over a row is kept in 16 parts whatever the vectors are.
 */
#include "isa.h"
#include "exp.h"
#include "lanes.h"

#include <math.h>

void ROWS_NAME(rows_rmsnorm)(float *y, const float *x, const float *weight, uint32_t n, float eps)
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

/* x * sigmoid(x) */
ALWAYS_INLINE float silu(float x)
{
	return x / (1 + exp_series(-x));
}

/* erfc keeps what 1 + erf would cancel where x is far below 0. */
ALWAYS_INLINE float gelu(float x)
{
	return 0.5f * x * erfcf(x * -0.707106781f);
}

/* x * (1 + tanh(t)) / 2 is x * sigmoid(2 t), which cancels nothing. */
ALWAYS_INLINE float gelu_tanh(float x)
{
	const float t = 0.797884561f * (x + 0.044715f * x * x * x);
	return x / (1 + exp_series(-2 * t));
}

#define GATE(function) \
	for (uint32_t i = 0; i < n; i++) \
	gate[i] = function(gate[i]) * up[i]

void ROWS_NAME(rows_gate)(enum rows_act act, float *gate, const float *up, uint32_t n)
{
	if (act == ROWS_SILU)
		GATE(silu);
	else if (act == ROWS_GELU)
		GATE(gelu);
	else if (act == ROWS_GELU_TANH)
		GATE(gelu_tanh);
	else
		GATE();
}

void ROWS_NAME(rows_add)(float *y, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] += x[i];
}

void ROWS_NAME(rows_scale)(float *y, float factor, size_t n)
{
	for (size_t i = 0; i < n; i++)
		y[i] *= factor;
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

void ROWS_NAME(rows_narrow)(void *to, enum work_dtype dtype, const float *from, size_t n)
{
	if (dtype == WORK_FP32)
		memcpy(to, from, n * sizeof(float));
	else if (dtype == WORK_BF16)
		narrow_bf16(to, from, n);
	else
		for (size_t i = 0; i < n; i++)
			((_Float16 *)to)[i] = (_Float16)from[i];
}

void ROWS_NAME(rows_widen)(float *to, const void *from, enum work_dtype dtype, size_t n)
{
	const size_t bytes = work_dtype_bytes(dtype);
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
