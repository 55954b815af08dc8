/*
 * norms.cu - norms of rows; see elements.h. Sums are fp32, in an order that a row's length alone
 * decides.
 *
 * norm       a block for each row, which it reads twice.
 * norm_wide  a row that is wide, read once by a thread for four or eight of its values.
 * norm_many  the same by an eighth as many threads, so that more rows are under way at a time.
 */
#include "elements.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/signals.cuh"
#include "sums.cuh"
#include "values.cuh"

#define NORM_THREADS 1024u
#define MANY_ROWS 256u /* of which norm_many is made */
#define MANY_THREADS 128u
#define MANY_EACH (NORM_THREADS / MANY_THREADS)

__device__ inline float norm_in(const struct device_norm &a, uint64_t at)
{
	return a.wide ? a.wide[at] : narrow_at(a.narrow, a.bf16, at);
}

/* Where the hidden row of the wanted one goes; NULL: nowhere. */
__device__ inline float *hidden_of(const struct device_norm &a, uint32_t i)
{
	const struct program_wanted *wanted = a.wanted ? &a.wanted[i] : NULL;
	float *behind;

	if (!wanted || !(wanted->want & PROGRAM_WANT_HIDDEN))
		return NULL;
	behind = (float *)(wanted->out + sizeof(struct program_row));
	return wanted->want & PROGRAM_WANT_LOGITS ? behind + a.n_vocab : behind;
}

__device__ inline float norm_factor(const struct device_norm &a, float squares)
{
	return 1 / sqrtf(sum_of_block<NORM_THREADS / 32>(squares) / a.n + a.eps);
}

__global__ void __launch_bounds__(NORM_THREADS)
	norm_kernel(const __grid_constant__ struct device_norm a)
{
	launch_next();
	launch_wait();
#if __CUDA_ARCH__ >= 800
	if (a.begin_ns && blockIdx.x == 0 && threadIdx.x == 0)
		*a.begin_ns = device_now_ns();
#endif

	uint32_t row = blockIdx.x;
	uint64_t from = (uint64_t)(a.wanted ? a.wanted[row].row : row) * a.stride;
	float *hidden = hidden_of(a, row);
	float squares = 0, factor = 1;

	for (uint32_t i = threadIdx.x; a.weight.at && i < a.n; i += NORM_THREADS) {
		float x = norm_in(a, from + i);

		squares += x * x;
	}
	if (a.weight.at)
		factor = norm_factor(a, squares);
	for (uint32_t i = threadIdx.x; i < a.n; i += NORM_THREADS) {
		float x = norm_in(a, from + i);

		if (a.weight.at)
			x = x * factor * vector_at(a.weight, i);
		put(a.out, row, i, x);
		if (hidden)
			hidden[i] = x;
	}
}

/* Four values of a row that is wide, so many times: read once. Weights are there before the row. */
template <uint32_t TIMES>
__global__ void __launch_bounds__(NORM_THREADS)
	norm_wide_kernel(const __grid_constant__ struct device_norm a)
{
	const float *from = a.wide + (uint64_t)blockIdx.x * a.stride;
	float weight[TIMES][4], squares = 0;
	float4 x[TIMES];

	launch_next();
#pragma unroll
	for (uint32_t t = 0; t < TIMES; t++) {
		uint32_t i = (t * NORM_THREADS + threadIdx.x) * 4;

#pragma unroll
		for (uint32_t j = 0; j < 4; j++)
			weight[t][j] = i < a.n ? vector_at(a.weight, i + j) : 0;
	}
	launch_wait();
#pragma unroll
	for (uint32_t t = 0; t < TIMES; t++) {
		uint32_t i = (t * NORM_THREADS + threadIdx.x) * 4;

		x[t] = i < a.n ? *(const float4 *)(from + i) : make_float4(0, 0, 0, 0);
	}
#pragma unroll
	for (uint32_t t = 0; t < TIMES; t++)
		squares += x[t].x * x[t].x + x[t].y * x[t].y + x[t].z * x[t].z + x[t].w * x[t].w;

	float factor = norm_factor(a, squares);

#pragma unroll
	for (uint32_t t = 0; t < TIMES; t++) {
		const float values[4] = {x[t].x * factor * weight[t][0],
					 x[t].y * factor * weight[t][1],
					 x[t].z * factor * weight[t][2],
					 x[t].w * factor * weight[t][3]};
		uint32_t i = (t * NORM_THREADS + threadIdx.x) * 4;

		if (i < a.n)
			put_four(a.out, blockIdx.x, i, values);
	}
}

/* The same sums, in the same order, by fewer threads: many rows are under way at a time. */
template <uint32_t TIMES>
__global__ void __launch_bounds__(MANY_THREADS)
	norm_many_kernel(const __grid_constant__ struct device_norm a)
{
	__shared__ float of_warps[NORM_THREADS / 32];
	const float *from = a.wide + (uint64_t)blockIdx.x * a.stride;
	float4 x[MANY_EACH][TIMES];
	float sum = 0;

	launch_next();
	launch_wait();
#pragma unroll
	for (uint32_t v = 0; v < MANY_EACH; v++) {
#pragma unroll
		for (uint32_t t = 0; t < TIMES; t++) {
			uint32_t i = (t * NORM_THREADS + v * MANY_THREADS + threadIdx.x) * 4;

			x[v][t] = i < a.n ? *(const float4 *)(from + i) : make_float4(0, 0, 0, 0);
		}
	}
#pragma unroll
	for (uint32_t v = 0; v < MANY_EACH; v++) {
		float squares = 0;

#pragma unroll
		for (uint32_t t = 0; t < TIMES; t++)
			squares += x[v][t].x * x[v][t].x + x[v][t].y * x[v][t].y +
				   x[v][t].z * x[v][t].z + x[v][t].w * x[v][t].w;
		squares = sum_of_warp(squares);
		if (threadIdx.x % 32 == 0)
			of_warps[(v * MANY_THREADS + threadIdx.x) / 32] = squares;
	}
	__syncthreads();
#pragma unroll
	for (uint32_t w = 0; w < NORM_THREADS / 32; w++)
		sum += of_warps[w];

	float factor = 1 / sqrtf(sum / a.n + a.eps);

#pragma unroll
	for (uint32_t v = 0; v < MANY_EACH; v++) {
#pragma unroll
		for (uint32_t t = 0; t < TIMES; t++) {
			uint32_t i = (t * NORM_THREADS + v * MANY_THREADS + threadIdx.x) * 4;

			if (i < a.n) {
				const float4 w = vector_four_at(a.weight, i);
				const float values[4] = {x[v][t].x * factor * w.x,
							 x[v][t].y * factor * w.y,
							 x[v][t].z * factor * w.z,
							 x[v][t].w * factor * w.w};

				put_four(a.out, blockIdx.x, i, values);
			}
		}
	}
}

/* ---- host ------------------------------------------------------------------------------------ */

extern "C" int device_norm(const struct device_norm *norm, struct launch_to to)
{
	uint32_t each = NORM_THREADS * 4;
	bool by_fours = norm->wide && norm->weight.at && !norm->wanted && norm->n % 4 == 0 &&
			norm->stride % 4 == 0 && take_fours(&norm->out);

	if (by_fours && norm->n <= 2 * each && norm->n_rows >= MANY_ROWS &&
	    (uintptr_t)norm->weight.at % 16 == 0)
		return launch_early(norm->n <= each ? norm_many_kernel<1> : norm_many_kernel<2>,
				    norm, {norm->n_rows, MANY_THREADS, 0}, to);
	if (by_fours && norm->n <= 2 * each)
		return launch_early(norm->n <= each ? norm_wide_kernel<1> : norm_wide_kernel<2>,
				    norm, {norm->n_rows, NORM_THREADS, 0}, to);
	return launch_early(norm_kernel, norm, {norm->n_rows, NORM_THREADS, 0}, to);
}
