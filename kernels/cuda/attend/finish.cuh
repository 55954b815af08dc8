/*
 * finish.cuh - the end of a work tile: what several warps have of the same rows is added up, and
 * goes to the output or to the partials that the merge folds.
 */
#ifndef COPPICE_CUDA_FINISH_CUH
#define COPPICE_CUDA_FINISH_CUH

#include "fold.cuh"

#if __CUDA_ARCH__ >= 800

/* The warps of a row block wait for each other. Work tiles of other shapes, which other warps may
 * be at, have other barriers. */
__device__ inline void block_sync(const struct warp_tile &w)
{
	named_barrier((1u << w.work_tile.blocks_log2) + w.block, w.n_splits * 32);
}

__device__ inline uint32_t warp_of(const struct warp_tile &w, uint32_t split)
{
	return w.block + (split << w.work_tile.blocks_log2);
}

/* max and sum over the warps of the block, of row lane % 16. Each half of the warp looks at every
 * other one: code that runs once is as slow as it is long. */
__device__ inline struct merge_state add_splits(const struct warp_tile &w,
						const struct merge_state *sums, uint32_t lane)
{
	struct merge_state all = {-INFINITY, 0};

	sums += lane % 16;
#pragma unroll 1
	for (uint32_t i = lane / 16; i < w.n_splits; i += 2)
		all.max = fmaxf(all.max, sums[warp_of(w, i) * DEVICE_BLOCK_ROWS].max);
	all.max = fmaxf(all.max, __shfl_xor_sync(~0u, all.max, 16));
#pragma unroll 1
	for (uint32_t i = lane / 16; i < w.n_splits; i += 2)
		merge_take(&all, &sums[warp_of(w, i) * DEVICE_BLOCK_ROWS]);
	all.sum += __shfl_xor_sync(~0u, all.sum, 16);
	return all;
}

/* Takes the sink into the sums of the row lane % 16, where they go to its output: else the merge
 * does. Returns the factor of what is relative to their max before. */
template <typename T>
__device__ inline float take_sink(const struct device_attend &a, const struct warp_tile &w,
				  struct merge_state &all)
{
	if constexpr (T::variant::has_sink) {
		if (w.mine_dest != DEVICE_NONE)
			return 1;
		const struct merge_state sink = merge_of_lse(T::variant::sink(a, w.mine_head));
		float factor = merge_raise(&all, fmaxf(all.max, sink.max));

		merge_take(&all, &sink);
		return factor;
	}
	return 1;
}

/* Statistics of the row lane % 16 to where they belong. */
__device__ inline void store_sums(const struct device_attend &a, const struct warp_tile &w,
				  const struct merge_state &all)
{
	if (w.mine_dest < DEVICE_DEST_NOTHING)
		*(float2 *)&a.part_stats[(uint64_t)w.mine_dest * 2] = make_float2(all.max, all.sum);
	else if (w.mine_dest == DEVICE_NONE && w.mine_o && w.mine_lse)
		*(float *)w.mine_lse = merge_lse(&all);
}

template <typename T> __device__ inline void store_four(uint64_t to, const float4 &v, float scale)
{
	*(uint2 *)to = make_uint2(T::dtype::pack(v.x * scale, v.y * scale),
				  T::dtype::pack(v.z * scale, v.w * scale));
}

/* ---- several warps to a row block ----------------------------------------------------------- */

/* Where a block of 8 columns of a row begins in a warp's stage of 64 columns. */
__device__ inline uint32_t stage_at(uint32_t row, uint32_t block)
{
	return row * 64 + ((block ^ (row & 7)) << 3);
}

/* The first 64 columns of the lane's rows into the warp's stage. */
template <typename T>
__device__ inline void stage_o(const struct warp_state<T> &s, const float (&factor)[2],
			       float *stage, uint32_t lane)
{
#pragma unroll
	for (uint32_t n = 0; n < 8; n++) { /* past the last: others of the columns before */
#pragma unroll
		for (uint32_t i = 0; i < 2; i++) {
			uint32_t row = lane / 4 + 8 * i;
			float2 v = make_float2(s.o[n][2 * i] * factor[i],
					       s.o[n][2 * i + 1] * factor[i]);

			*(float2 *)&stage[stage_at(row, n) + lane % 4 * 2] = v;
		}
	}
}

/* The next 64 columns are the first. */
template <typename T> __device__ inline void next_columns(struct warp_state<T> &s)
{
#pragma unroll
	for (uint32_t n = 0; n + 8 < T::v / 8; n++) {
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			s.o[n][i] = s.o[n + 8][i];
	}
}

/* Max and sum of the warp's rows, to all warps of the row block; returns those that the row lane %
 * 16 has over all of them. */
template <typename T>
__device__ inline struct merge_state share_sums(const struct warp_tile &w, char *shared,
						const struct warp_state<T> &s)
{
	struct merge_state *sums = (struct merge_state *)(shared + layout<T>::sums);
	uint32_t lane = threadIdx.x % 32, mine = threadIdx.x / 32 * DEVICE_BLOCK_ROWS + lane / 4;

	if (lane % 4 == 0) {
		sums[mine] = (struct merge_state){s.max[0], s.sum[0]};
		sums[mine + 8] = (struct merge_state){s.max[1], s.sum[1]};
	}
	block_sync(w);
	return add_splits(w, sums, lane);
}

/* Four columns of a row, at in what each warp of the row block has staged: summed over all. */
template <typename T>
__device__ inline float4 sum_staged(const struct warp_tile &w, const char *rows, uint32_t at)
{
	float4 sum = make_float4(0, 0, 0, 0);

#pragma unroll 1
	for (uint32_t k = 0; k < w.n_splits; k += 2) {
		const float4 x = *(const float4 *)(rows + warp_of(w, k) * T::rows_stride + at);
		const float4 y = *(const float4 *)(rows + warp_of(w, k + 1) * T::rows_stride + at);

		sum.x += x.x + y.x;
		sum.y += x.y + y.y;
		sum.z += x.z + y.z;
		sum.w += x.w + y.w;
	}
	return sum;
}

/* 64 columns from first on, which all warps of the row block have staged, to where they belong; a
 * warp takes its share. scale: of row lane % 16. */
template <typename T>
__device__ inline void store_staged(const struct device_attend &a, const struct warp_tile &w,
				    const char *rows, uint32_t first, float scale)
{
#pragma unroll 1
	for (uint32_t i = w.split * 32 + threadIdx.x % 32; i < 256; i += w.n_splits * 32) {
		uint32_t row = i / 16, block = i % 16 / 2, half = i % 2;
		uint32_t at = (stage_at(row, block) + half * 4) * 4;
		uint64_t column = first + block * 8 + half * 4;
		uint32_t dest = __shfl_sync(~0u, w.mine_dest, row);
		uint64_t to = __shfl_sync(~0u, w.mine_o, row);
		float row_scale = __shfl_sync(~0u, scale, row);
		float4 sum = sum_staged<T>(w, rows, at);

		if (T::v % 64 && column >= T::v)
			continue;
		if (dest < DEVICE_DEST_NOTHING)
			*(float4 *)&a.part_o[(uint64_t)dest * T::v + column] = sum;
		else if (dest == DEVICE_NONE && to)
			store_four<T>(to + column * 2, sum, row_scale);
	}
}

template <typename T>
__device__ inline void finish_shared(const struct device_attend &a, const struct warp_tile &w,
				     char *shared, struct warp_state<T> &s)
{
	uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	struct merge_state all = share_sums<T>(w, shared, s);
	char *rows = shared + layout<T>::rows;
	float factor[2], scale;

	take_sink<T>(a, w, all); /* sums are made relative to its max below */
	scale = merge_scale(&all);
	if (w.split == 0 && lane < 16)
		store_sums(a, w, all);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
		factor[i] = merge_weight(s.max[i], __shfl_sync(~0u, all.max, lane / 4 + 8 * i));
#pragma unroll 1
	for (uint32_t first = 0; first < T::v; first += 64) {
		stage_o<T>(s, factor, (float *)(rows + warp * T::rows_stride), lane);
		next_columns(s);
		block_sync(w);
		store_staged<T>(a, w, rows, first, scale);
		if (first + 64 < T::v)
			block_sync(w);
	}
}

/* ---- a warp of its own to every row block --------------------------------------------------- */

/* Of four lanes with four words each, lane c gets word c of all: columns 8 c to 8 c + 7 of four
 * blocks of 8. */
__device__ inline uint4 transpose_quad(uint32_t (&v)[4], uint32_t lane)
{
	bool odd = lane & 1, high = lane & 2;
	uint32_t x0 = __shfl_xor_sync(~0u, odd ? v[0] : v[1], 1),
		 x1 = __shfl_xor_sync(~0u, odd ? v[2] : v[3], 1);
	uint32_t r0 = odd ? x0 : v[0], r1 = odd ? v[1] : x0, r2 = odd ? x1 : v[2],
		 r3 = odd ? v[3] : x1;
	uint32_t y0 = __shfl_xor_sync(~0u, high ? r0 : r2, 2),
		 y1 = __shfl_xor_sync(~0u, high ? r1 : r3, 2);

	return high ? make_uint4(y0, y1, r2, r3) : make_uint4(r0, r1, y0, y1);
}

/* The first of the lane's two rows to its output. */
template <typename T>
__device__ inline void store_row(const struct warp_state<T> &s, uint64_t to, float scale,
				 uint32_t lane)
{
#pragma unroll
	for (uint32_t n = 0; n < T::v / 8; n += 4) {
		uint32_t v[4];
		uint4 mine;

#pragma unroll
		for (uint32_t j = 0; j < 4; j++)
			v[j] = T::dtype::pack(s.o[n + j][0] * scale, s.o[n + j][1] * scale);
		mine = transpose_quad(v, lane);
		if (to)
			*(uint4 *)(to + (n + lane % 4) * 16) = mine;
	}
}

template <typename T>
__device__ inline void store_part(const struct device_attend &a, const struct warp_state<T> &s,
				  uint32_t dest, uint32_t lane)
{
	float *to = &a.part_o[(uint64_t)dest * T::v + lane % 4 * 2];

	if (dest >= DEVICE_DEST_NOTHING)
		return;
#pragma unroll
	for (uint32_t n = 0; n < T::v / 8; n++)
		*(float2 *)(to + n * 8) = make_float2(s.o[n][0], s.o[n][1]);
}

/* The lane's second row is the first. */
template <typename T> __device__ inline void next_row(struct warp_state<T> &s)
{
#pragma unroll
	for (uint32_t n = 0; n < T::v / 8; n++) {
		s.o[n][0] = s.o[n][2];
		s.o[n][1] = s.o[n][3];
	}
}

template <typename T>
__device__ inline void finish_alone(const struct device_attend &a, const struct warp_tile &w,
				    uint32_t lane, struct warp_state<T> &s)
{
	struct merge_state all;

	/* of row lane % 16, which lanes 4 (lane % 8) to 4 (lane % 8) + 3 have */
	all.max = __shfl_sync(~0u, s.max[0], lane % 8 * 4);
	all.sum = __shfl_sync(~0u, s.sum[0], lane % 8 * 4);

	float high_max = __shfl_sync(~0u, s.max[1], lane % 8 * 4),
	      high_sum = __shfl_sync(~0u, s.sum[1], lane % 8 * 4);

	if (lane & 8)
		all = (struct merge_state){high_max, high_sum};

	float factor = take_sink<T>(a, w, all), scale = factor * merge_scale(&all);

	if (lane < 16)
		store_sums(a, w, all);
#pragma unroll 1
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t dest = __shfl_sync(~0u, w.mine_dest, lane / 4 + 8 * i);
		uint64_t to = __shfl_sync(~0u, w.mine_o, lane / 4 + 8 * i);
		float row_scale = __shfl_sync(~0u, scale, lane / 4 + 8 * i);
		bool output = dest == DEVICE_NONE && to;

		if (__any_sync(~0u, dest < DEVICE_DEST_NOTHING))
			store_part<T>(a, s, dest, lane);
		if (__any_sync(~0u, output))
			store_row<T>(s, output ? to : 0, row_scale, lane);
		next_row(s);
	}
}

template <typename T> __device__ inline void sum_quads(struct warp_state<T> &s)
{
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		s.sum[i] += __shfl_xor_sync(~0u, s.sum[i], 1);
		s.sum[i] += __shfl_xor_sync(~0u, s.sum[i], 2);
	}
}
#endif

#endif
