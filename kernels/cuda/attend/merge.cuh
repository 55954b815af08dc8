/*
 * merge.cuh - partials to outputs: a warp for every row that has no partial or several and every
 * query head, or four where there are many partials. Each folds its own in index order, and so do
 * they, so that the bits repeat. A row without any gets O = 0 and LSE = -inf, or a variant's
 * sink, which is one partial more, of no values.
 */
#ifndef COPPICE_CUDA_MERGE_CUH
#define COPPICE_CUDA_MERGE_CUH

#include "attend.h"
#include "clocks.cuh"
#include "traits.cuh"
#include "kernels/cuda/device/merged.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/launch.cuh"

#define MERGE_WARPS 4u
#define MERGE_AT_ONCE 8u /* partials that a warp asks for before it waits for one */

#if __CUDA_ARCH__ >= 800
template <uint32_t N> __device__ inline void load_columns(float (&to)[N], const float *from)
{
	if constexpr (N == 2) {
		float2 v = *(const float2 *)from;

		to[0] = v.x;
		to[1] = v.y;
	} else {
#pragma unroll
		for (uint32_t j = 0; j < N; j += 4)
			*(float4 *)&to[j] = *(const float4 *)&from[j];
	}
}

/* A warp's row and query head among those that partials are of. */
struct merge_warp {
	uint32_t head, n_heads; /* of the schedule's rows, all KV heads */
	uint32_t first, step; /* it adds these of the row's partials */
};

/* Adds the partials first, first + step, ... in this order. */
template <uint32_t DIM>
__device__ inline void merge_parts(const struct device_attend &a, const struct device_merge &m,
				   const struct merge_warp &p,
				   struct merged<kv_lane_values(DIM)> &ret)
{
	constexpr uint32_t n = kv_lane_values(DIM);
	uint32_t column = threadIdx.x % 32 * n;

#pragma unroll 1
	for (uint32_t i = p.first; i < m.n_parts; i += MERGE_AT_ONCE * p.step) {
		struct merge_state parts[MERGE_AT_ONCE];
		float o[MERGE_AT_ONCE][n];

#pragma unroll
		for (uint32_t k = 0; k < MERGE_AT_ONCE; k++) {
			uint32_t entry = (m.first + i + k * p.step) * p.n_heads + p.head;

			parts[k] = {-INFINITY, 0};
			for (uint32_t j = 0; j < n; j++)
				o[k][j] = 0;
			if (i + k * p.step < m.n_parts) {
				float2 stats = *(const float2 *)&a.part_stats[(uint64_t)entry * 2];

				parts[k] = {stats.x, stats.y};
				if (n * 32 == DIM || column < DIM)
					load_columns<n>(o[k],
							&a.part_o[(uint64_t)entry * DIM + column]);
			}
		}
		merged_add(ret, parts, MERGE_AT_ONCE,
			   [&o](uint32_t k, uint32_t j) { return o[k][j]; });
	}
}

template <typename VARIANT, uint32_t N>
__device__ inline void merge_sink(const struct device_attend &a, uint32_t q_head,
				  struct merged<N> &to)
{
	if constexpr (VARIANT::has_sink) {
		const struct merge_state sink[1] = {merge_of_lse(VARIANT::sink(a, q_head))};

		merged_add(to, sink, 1, [](uint32_t, uint32_t) { return 0.0f; });
	}
}

/* q_head: from the row's first on. */
template <typename DTYPE, uint32_t DIM>
__device__ inline void merge_store(const struct device_row &row, uint32_t q_head,
				   const struct merged<kv_lane_values(DIM)> &m)
{
	constexpr uint32_t n = kv_lane_values(DIM);
	uint32_t lane = threadIdx.x % 32;
	uint32_t *to = (uint32_t *)(row.o + ((uint64_t)q_head * DIM + lane * n) * 2);
	float scale = merge_scale(&m.state);

#pragma unroll
	for (uint32_t j = 0; j < n && (n * 32 == DIM || lane * n < DIM); j += 2)
		to[j / 2] = DTYPE::pack(m.o[j] * scale, m.o[j + 1] * scale);
	if (lane == 0 && row.lse)
		((float *)row.lse)[q_head] = merge_lse(&m.state);
}

/* The first warp of a row adds what the others of the block have, in their order. */
template <uint32_t N> __device__ inline void merge_warps(struct merged<N> &mine, uint32_t n_warps)
{
	__shared__ struct merged<N> shared[MERGE_WARPS][32];
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

	shared[warp][lane] = mine;
	__syncthreads();
	if (warp % n_warps)
		return;
	for (uint32_t k = 1; k < n_warps; k++) {
		const struct merged<N> &other = shared[warp + k][lane];
		const struct merge_state parts[1] = {other.state};

		merged_add(mine, parts, 1, [&other](uint32_t, uint32_t j) { return other.o[j]; });
	}
}
#endif

/* 2^warps_log2 warps to a row and query head. What comes before launch_wait was there before
 * attention began. */
template <typename DTYPE, uint32_t DIM, typename VARIANT>
__global__ void __launch_bounds__(MERGE_WARPS * 32)
	merge_kernel(const __grid_constant__ struct device_attend a)
{
#if __CUDA_ARCH__ >= 800
	uint32_t heads = a.shape.row_heads, n_heads = a.shape.n_kv_heads * heads;
	uint32_t n_warps = 1u << a.merge_warps_log2;
	uint32_t warp = blockIdx.x * MERGE_WARPS + threadIdx.x / 32;
	uint32_t index = (warp >> a.merge_warps_log2) / n_heads;
	struct merge_warp w = {(warp >> a.merge_warps_log2) % n_heads, n_heads, warp % n_warps,
			       n_warps};
	struct merged<kv_lane_values(DIM)> mine = merged_nothing<kv_lane_values(DIM)>();
	struct device_merge m = {};
	struct device_row row = {};

	CLOCK_MERGE(a, CLOCK_BEGIN);
	if (a.ahead)
		launch_next();
	if (a.n_work_tiles == 0) /* then what comes before is what brings the rows */
		launch_wait();
	if (index < a.n_merges) {
		m = a.merges[index];
		row = a.rows[m.row];
	}
	launch_wait();
	launch_next();
	merge_parts<DIM>(a, m, w, mine);
	if (n_warps > 1)
		merge_warps(mine, n_warps);
	if (row.o && w.first == 0) {
		uint32_t q_head = w.head / heads * a.shape.group + w.head % heads;

		merge_sink<VARIANT>(a, q_head + first_head_of(a.shape, m.row), mine);
		merge_store<DTYPE, DIM>(row, q_head, mine);
	}
	CLOCK_MERGE(a, CLOCK_END);
#endif
}

#endif
