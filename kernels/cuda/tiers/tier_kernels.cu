/*
 * tier_kernels.cu - slices of KV between pinned host memory and the pool: bulk copies into shared
 * memory and out again.
 *
 * grid: TIER_BLOCKS blocks of one warp, of which one thread works. Copies are cut into pieces of 16
 * KiB, dealt to the blocks in turns; a block has a ring of SLOTS pieces, DEPTH of them on their way
 * in, the others on their way out. In code for what is before sm_90 nothing: the copy engines do
 * it.
 *
 * fold: a warp an entry (row and head). Outputs with their log sum-exps become one; an LSE of -inf
 * is of no keys and counts nothing; a NaN stays one.
 */
#include "kernels/cuda/device/merged.cuh"
#include "kernels/cuda/device/halves.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "tier.h"
#include "proto/arith.h"

#include <cuda_runtime_api.h>

#define PIECE 16384u
#define SLOTS 12u
#define DEPTH 10u
#define RING_BYTES (SLOTS * PIECE)

#if __CUDA_ARCH__ >= 900
__device__ inline void bulk_store(uint64_t to, uint32_t from, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
		     "r"(from), "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until shared memory of all stores but the last N was read. */
template <uint32_t N> __device__ inline void bulk_wait_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

struct piece {
	uint64_t from, to;
	uint32_t bytes;
};

__device__ inline struct piece piece_of(const struct device_tier &t, uint32_t i, uint32_t n_each)
{
	uint32_t copy = i / n_each, at = i % n_each * PIECE;
	struct piece p = {t.from[copy] + at, t.to[copy] + at, PIECE};

	if (t.bytes - at < PIECE)
		p.bytes = (uint32_t)t.bytes - at;
	return p;
}
#endif

__global__ void __launch_bounds__(32) tier_kernel(const __grid_constant__ struct device_tier t)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) char slots[];
	__shared__ uint64_t full[SLOTS];
	uint32_t n_each = ceil_div((uint32_t)t.bytes, PIECE), n_all = t.n * n_each;
	uint32_t n = (n_all + gridDim.x - 1 - blockIdx.x) / gridDim.x;
	uint32_t base = shared_address(slots), barriers = shared_address(full);

	if (threadIdx.x != 0)
		return;
	for (uint32_t i = 0; i < SLOTS; i++)
		barrier_init(barriers + i * 8, 1);
	fence_barriers();
	for (uint32_t i = 0; i < n + DEPTH; i++) {
		if (i < n) {
			struct piece p = piece_of(t, blockIdx.x + i * gridDim.x, n_each);
			uint32_t slot = i % SLOTS;

			if (i >= SLOTS)
				bulk_wait_read<SLOTS - DEPTH - 1>();
			barrier_expect(barriers + slot * 8, p.bytes);
			bulk_copy(base + slot * PIECE, (const void *)p.from, p.bytes,
				  barriers + slot * 8);
		}
		if (i >= DEPTH && i - DEPTH < n) {
			uint32_t j = i - DEPTH, slot = j % SLOTS;
			struct piece p = piece_of(t, blockIdx.x + j * gridDim.x, n_each);

			barrier_wait(barriers + slot * 8, j / SLOTS & 1);
			bulk_store(p.to, base + slot * PIECE, p.bytes);
		}
	}
	asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

#define FOLD_WARPS 8u

/* LSEs of an entry's parts: -inf where there is none. */
__device__ inline void read_lses(const struct device_fold &f, uint32_t row, uint32_t head,
				 float (&lse)[FOLD_PARTS])
{
#pragma unroll
	for (uint32_t k = 0; k < FOLD_PARTS; k++) {
		bool there = k < f.n_parts && row >= f.parts[k].begin && row < f.parts[k].end &&
			     (head / f.group >= 64 || (f.parts[k].heads >> head / f.group & 1));

		lse[k] =
			there ? ((const float *)(f.part_lse +
						 k * f.lse_bytes))[(uint64_t)row * f.n_heads + head]
			      : -INFINITY;
	}
}

/* Of what was folded before, whose LSE is that, and of the parts; LSEs become what each counts for.
 * ret_before: what that from before does. */
__device__ inline struct merge_state weigh_parts(float before, float (&lse)[FOLD_PARTS],
						 float *ret_before)
{
	struct merge_state all = merge_of_lse(before), parts[FOLD_PARTS];
	float max = all.max;

#pragma unroll
	for (uint32_t k = 0; k < FOLD_PARTS; k++) {
		parts[k] = merge_of_lse(lse[k]);
		max = fmaxf(max, parts[k].max);
	}
	*ret_before = merge_raise(&all, max);
#pragma unroll
	for (uint32_t k = 0; k < FOLD_PARTS; k++)
		lse[k] = merge_take(&all, &parts[k]);
	return all;
}

template <typename TYPE>
__global__ void __launch_bounds__(FOLD_WARPS * 32)
	fold_kernel(const __grid_constant__ struct device_fold f)
{
	uint32_t index = blockIdx.x * FOLD_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
	uint32_t row = f.first_row + index / f.n_heads, head = index % f.n_heads;
	uint64_t entry = (uint64_t)row * f.n_heads + head;

	if (index >= f.n_rows * f.n_heads)
		return;
	float *state = f.state + entry * (f.head_dim + 1);
	TYPE *o = (TYPE *)(f.o + index / f.n_heads * f.o_stride) + head * f.head_dim;
	float weights[FOLD_PARTS], before;

	read_lses(f, row, head, weights);
	const struct merge_state all =
		weigh_parts(f.had ? state[f.head_dim] : -INFINITY, weights, &before);
	float scale = merge_scale(&all);

	__syncwarp(); /* all lanes have read the LSE */
	for (uint32_t i = 2 * lane; i < f.head_dim; i += 64) {
		float x = 0, y = 0;

		if (before != 0) {
			x = state[i] * before;
			y = state[i + 1] * before;
		}
#pragma unroll
		for (uint32_t k = 0; k < FOLD_PARTS; k++) {
			if (weights[k] == 0)
				continue;
			const TYPE *part =
				(const TYPE *)(f.part_o + k * f.o_bytes) + entry * f.head_dim + i;
			uint32_t both = *(const uint32_t *)part;

			x += value_of(((const TYPE *)&both)[0]) * weights[k];
			y += value_of(((const TYPE *)&both)[1]) * weights[k];
		}
		if (f.last) {
			o[i] = type_of<TYPE>(x * scale);
			o[i + 1] = type_of<TYPE>(y * scale);
		} else {
			state[i] = x * scale;
			state[i + 1] = y * scale;
		}
	}
	if (lane != 0)
		return;
	if (!f.last)
		state[f.head_dim] = merge_lse(&all);
	else if (f.lse)
		((float *)(f.lse + index / f.n_heads * f.lse_stride))[head] = merge_lse(&all);
}

extern "C" int device_fold(const struct device_fold *fold, device_stream stream)
{
	uint32_t n_blocks = ceil_div(fold->n_rows * fold->n_heads, FOLD_WARPS);

	if (fold->bf16)
		fold_kernel<__nv_bfloat16><<<n_blocks, FOLD_WARPS * 32, 0, stream>>>(*fold);
	else
		fold_kernel<__half><<<n_blocks, FOLD_WARPS * 32, 0, stream>>>(*fold);
	return cudaGetLastError();
}

extern "C" int device_tier_init(void)
{
	return cudaFuncSetAttribute((const void *)tier_kernel,
				    cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
}

extern "C" int device_tier(const struct device_tier *copies, device_stream stream)
{
	tier_kernel<<<TIER_BLOCKS, 32, RING_BYTES, stream>>>(*copies);
	return cudaGetLastError();
}
