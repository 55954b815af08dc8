/*
 * tier.cu - slices of KV between pinned host memory and the pool: bulk copies into shared memory and out again.
 *
 * grid: TIER_BLOCKS blocks of one warp, of which one thread works. Copies are cut into pieces of 16 KiB, dealt to the
 * blocks in turns; a block has a ring of SLOTS pieces, DEPTH of them on their way in, the others on their way out. Before
 * sm_90 nothing: the copy engines do it.
 *
 * fold: a warp an entry (row and head). Two outputs with their log sum-exps become one; an LSE of -inf is of no keys and counts
 * nothing; a NaN stays one.
 */
#include "halves.cuh"
#include "hopper.cuh"
#include "tier.h"

#include <cuda_runtime_api.h>

#define PIECE 16384u
#define SLOTS 12u
#define DEPTH 10u
#define RING_BYTES (SLOTS * PIECE)

#if __CUDA_ARCH__ >= 900
__device__ inline void bulk_store(uint64_t to, uint32_t from, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
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
		p.bytes = t.bytes - at;
	return p;
}
#endif

__global__ void __launch_bounds__(32) tier_kernel(const __grid_constant__ struct device_tier t)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) char ring[];
	__shared__ uint64_t full[SLOTS];
	uint32_t n_each = (t.bytes + PIECE - 1) / PIECE, n_all = t.n * n_each;
	uint32_t n = (n_all + gridDim.x - 1 - blockIdx.x) / gridDim.x;
	uint32_t base = shared_address(ring), barriers = shared_address(full);

	if (threadIdx.x != 0)
		return;
	for (uint32_t i = 0; i < SLOTS; i++)
		barrier_init(barriers + i * 8, 1);
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	for (uint32_t i = 0; i < n + DEPTH; i++) {
		if (i < n) {
			struct piece p = piece_of(t, blockIdx.x + i * gridDim.x, n_each);
			uint32_t slot = i % SLOTS;

			if (i >= SLOTS)
				bulk_wait_read<SLOTS - DEPTH - 1>();
			barrier_expect(barriers + slot * 8, p.bytes);
			bulk_copy(base + slot * PIECE, (const void *)p.from, p.bytes, barriers + slot * 8);
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

template <typename TYPE> __global__ void __launch_bounds__(FOLD_WARPS * 32) fold_kernel(const __grid_constant__ struct device_fold f)
{
	uint32_t entry = blockIdx.x * FOLD_WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
	uint32_t row = entry / f.n_heads, head = entry % f.n_heads;

	if (row >= f.n_rows)
		return;
	float *state = f.state + (uint64_t)entry * (f.head_dim + 2);
	const TYPE *part = (const TYPE *)f.part_o + (uint64_t)entry * f.head_dim;
	TYPE *o = (TYPE *)(f.o + row * f.o_stride) + head * f.head_dim;
	bool there = head / f.group >= 64 || (f.heads >> head / f.group & 1);
	float part_lse = there ? f.part_lse[entry] : -INFINITY, lse = state[f.head_dim + 1] == 0 ? -INFINITY : state[f.head_dim];
	bool none = lse == -INFINITY, part_none = part_lse == -INFINITY;
	float most = fmaxf(lse, part_lse);
	float a = none ? 0 : __expf(lse - most), b = part_none ? 0 : __expf(part_lse - most);
	float both = none && part_none ? -INFINITY : most + __logf(a + b);
	float scale = none && part_none ? 0 : 1 / (a + b);

	__syncwarp(); /* all lanes have read the LSE */
	for (uint32_t i = lane; i < f.head_dim; i += 32) {
		float x = (none ? 0 : state[i] * a) + (part_none ? 0 : value_of(part[i]) * b);

		state[i] = x * scale;
		if (f.last)
			o[i] = type_of<TYPE>(x * scale);
	}
	if (lane != 0)
		return;
	state[f.head_dim] = both;
	state[f.head_dim + 1] = 1;
	if (f.last && f.lse)
		((float *)(f.lse + row * f.lse_stride))[head] = both;
}

extern "C" int device_fold(const struct device_fold *fold, device_stream stream)
{
	uint32_t n_blocks = (fold->n_rows * fold->n_heads + FOLD_WARPS - 1) / FOLD_WARPS;

	if (fold->bf16)
		fold_kernel<__nv_bfloat16><<<n_blocks, FOLD_WARPS * 32, 0, stream>>>(*fold);
	else
		fold_kernel<__half><<<n_blocks, FOLD_WARPS * 32, 0, stream>>>(*fold);
	return cudaGetLastError();
}

extern "C" int device_tier_init(void)
{
	return cudaFuncSetAttribute((const void *)tier_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
}

extern "C" int device_tier(const struct device_tier *copies, device_stream stream)
{
	tier_kernel<<<TIER_BLOCKS, 32, RING_BYTES, stream>>>(*copies);
	return cudaGetLastError();
}
