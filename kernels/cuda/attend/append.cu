/*
 * append.cu - what comes before attention, row by row; see append.h.
 *
 * inbound  a warp for every new token and KV head (a token whose V is not finite: see format.h),
 *          for every 512 bytes of Q that are to be brought, and for as much of the rows' table.
 * called   which does as inbound does, of what it hears. It begins when the launch before it has
 *          heard (signals.cu), and waits for no more of it.
 * move     one block: all layers and heads of one token; warps take head blocks in turn.
 */
#include "append.h"
#include "proto/arith.h"
#include "kernels/cuda/device/halves.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/signals.cuh"

#define APPEND_WARPS 4u

#if __CUDA_ARCH__ >= 800
__device__ inline uint4 load_any(uint64_t from, bool aligned)
{
	const uint16_t *at = (const uint16_t *)from;

	if (aligned)
		return *(const uint4 *)from;
	return make_uint4(at[0] | (uint32_t)at[1] << 16, at[2] | (uint32_t)at[3] << 16,
			  at[4] | (uint32_t)at[5] << 16, at[6] | (uint32_t)at[7] << 16);
}
#endif

#if __CUDA_ARCH__ >= 800
/* A lane's chunks of K and V of a token (kv_lane_chunks). */
template <uint32_t N>
__device__ inline void append_token(const struct device_inbound &a, const struct device_token &at,
				    uint32_t head, char *kv_block)
{
	uint32_t dim = a.shape.head_dim, chunks = dim / 8, lane = threadIdx.x % 32;
	uint4 v[N];
	bool bad = false;

#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
		uint32_t i = n * 32 + lane, chunk = i % chunks;

		v[n] = make_uint4(0, 0, 0, 0);
		if (i >= 2 * chunks)
			continue;
		v[n] = load_any((i < chunks ? at.k : at.v) + ((uint64_t)head * dim + chunk * 8) * 2,
				a.aligned);
		bad = bad || (i >= chunks && not_finite(v[n], a.shape.bf16));
	}
	bad = __any_sync(~0u, bad);
#pragma unroll
	for (uint32_t n = 0; n < N; n++) {
		uint32_t i = n * 32 + lane, chunk = i % chunks, fill = i < chunks ? ~0u : 0;

		if (i >= 2 * chunks)
			continue;
		if (bad)
			v[n] = make_uint4(fill, fill, fill, fill);
		*(uint4 *)(kv_block + (i < chunks ? 0 : kv_part_bytes(dim)) +
			   kv_chunk_offset(dim, at.row, chunk)) = v[n];
	}
}
#endif

#define COPY_BYTES 512u /* of a warp */
#define INBOUND_WARPS 16u
#define BUS_BLOCKS 48u /* saturate the bus, and leave the other multiprocessors to attention */

#if __CUDA_ARCH__ >= 800
/* The warp's part of row copies: a lane has 16 bytes, which end up at a multiple of 16. From 0:
 * nothing is wanted. */
__device__ inline void copy_part(const struct device_inbound &a, uint64_t part)
{
	uint32_t parts = ceil_div(a.copy_bytes, COPY_BYTES),
		 at = part % parts * COPY_BYTES + threadIdx.x % 32 * 16;
	struct device_copy copy = {a.copy_from + part / parts * a.copy_stride,
				   a.copy_to + part / parts * a.copy_bytes};

	if (!a.copy_stride)
		copy = a.copies[part / parts];

	if (copy.from && at < a.copy_bytes)
		*(uint4 *)(copy.to + at) = load_any(copy.from + at, copy.from % 16 == 0);
}

/* Rows' table and patches. */
__device__ inline void copy_rows(const struct device_inbound &a, uint64_t part)
{
	uint64_t i = part * 32 + threadIdx.x % 32;

	if (i < a.n_patches)
		*(uint32_t *)a.patches[i].to = a.patches[i].value;

	const uint4 *from = (const uint4 *)a.rows_from;

	if (i < (uint64_t)a.n_rows * sizeof(*a.rows_from) / 16)
		((uint4 *)a.rows_to)[i] = from[i];
}
#endif

/* A warp's worth of what there is to bring. */
__host__ __device__ inline uint64_t inbound_warps(const struct device_inbound &a)
{
	uint64_t parts = ceil_div(a.copy_bytes, COPY_BYTES);
	uint64_t rows = ceil_div_u64((uint64_t)a.n_rows * sizeof(struct device_row), COPY_BYTES);
	uint64_t patches = ceil_div(a.n_patches, 32);

	return (uint64_t)a.n_tokens * a.shape.n_kv_heads + a.n_copies * parts +
	       (rows > patches ? rows : patches);
}

#if __CUDA_ARCH__ >= 800
__device__ inline void bring(const struct device_inbound &a, uint64_t warp)
{
	uint64_t n_appends = (uint64_t)a.n_tokens * a.shape.n_kv_heads;
	uint64_t n_parts = (uint64_t)a.n_copies * ceil_div(a.copy_bytes, COPY_BYTES);

	if (warp < n_appends) {
		struct device_token at = a.tokens[warp / a.shape.n_kv_heads];
		uint32_t head = warp % a.shape.n_kv_heads;
		char *kv_block =
			a.pool + head * a.shape.head_bytes + (uint64_t)at.source * KV_SOURCE_BYTES;

		if (kv_lane_chunks(a.shape.head_dim) == 1)
			append_token<1>(a, at, head, kv_block);
		else
			append_token<2>(a, at, head, kv_block);
	} else if (warp < n_appends + n_parts) {
		copy_part(a, warp - n_appends);
	} else {
		copy_rows(a, warp - n_appends - n_parts);
	}
}
#endif

__global__ void __launch_bounds__(INBOUND_WARPS * 32)
	inbound_kernel(const __grid_constant__ struct device_inbound a)
{
#if __CUDA_ARCH__ >= 800
	uint64_t warp = (uint64_t)blockIdx.x * INBOUND_WARPS + threadIdx.x / 32,
		 step = (uint64_t)gridDim.x * INBOUND_WARPS;

	if (a.begin_ns && blockIdx.x == 0 && threadIdx.x == 0)
		*a.begin_ns = device_now_ns();
	if (a.ahead)
		launch_next();
	launch_wait();
	launch_next();
	for (uint64_t end = inbound_warps(a); warp < end; warp += step)
		bring(a, warp);
#endif
}

#if __CUDA_ARCH__ >= 800
/* Nothing of any row is wanted. */
__device__ inline void empty_rows(const struct device_stand &a)
{
	uint32_t n = a.n_rows * (uint32_t)(sizeof(*a.rows) / 16);

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		((uint4 *)a.rows)[i] = make_uint4(0, 0, 0, 0);
}
#endif

__global__ void __launch_bounds__(INBOUND_WARPS * 32)
	called_kernel(const __grid_constant__ struct device_stand a)
{
#if __CUDA_ARCH__ >= 800
	__shared__ uint64_t words[DEVICE_CALL_WORDS];
	__shared__ bool called;
	uint64_t warp = (uint64_t)blockIdx.x * INBOUND_WARPS + threadIdx.x / 32,
		 step = (uint64_t)gridDim.x * INBOUND_WARPS;

	if (threadIdx.x < 32) {
		packet call = hear(a.heard, a.id, 0);

		if (threadIdx.x < DEVICE_CALL_WORDS)
			words[threadIdx.x] = call.low;
		if (threadIdx.x == 0)
			called = call.high == DEVICE_CALL_GO(a.id);
	}
	__syncthreads();
	launch_next();
	if (!called) {
		empty_rows(a);
		return;
	}

	const struct device_inbound &in = *(const struct device_inbound *)words;

	if (in.begin_ns && blockIdx.x == 0 && threadIdx.x == 0)
		*in.begin_ns = device_now_ns();
	for (uint64_t end = inbound_warps(in); warp < end; warp += step)
		bring(in, warp);
#endif
}

__global__ void __launch_bounds__(APPEND_WARPS * 32)
	move_kernel(const __grid_constant__ struct device_move m)
{
#if __CUDA_ARCH__ >= 800
	uint32_t chunks = m.head_dim / 8;

	for (uint32_t head = threadIdx.x / 32; head < m.n_heads; head += APPEND_WARPS) {
		char *pool = m.pool + head * m.head_bytes;
		const char *from = pool + (uint64_t)m.from * KV_SOURCE_BYTES;
		char *to = pool + (uint64_t)m.to * KV_SOURCE_BYTES;

		for (uint32_t i = threadIdx.x % 32; i < 2 * chunks; i += 32) {
			uint32_t chunk = i % chunks;
			uint32_t half = i < chunks ? 0 : kv_part_bytes(m.head_dim);

			*(uint4 *)(to + half + kv_chunk_offset(m.head_dim, m.to_row, chunk)) =
				*(const uint4 *)(from + half +
						 kv_chunk_offset(m.head_dim, m.from_row, chunk));
		}
	}
#endif
}

/* ---- host ----------------------------------------------------------------------------------- */

extern "C" int device_inbound(const struct device_inbound *in, struct launch_to to)
{
	uint64_t n_warps = inbound_warps(*in), n_blocks = ceil_div_u64(n_warps, INBOUND_WARPS);
	uint32_t most_blocks = in->n_copies ? BUS_BLOCKS : UINT32_MAX;
	struct launch_shape shape = {(uint32_t)min_u64(n_blocks, most_blocks), INBOUND_WARPS * 32,
				     0};

	return n_warps ? launch_early(inbound_kernel, in, shape, to) : (int)cudaSuccess;
}

/* Which member moves a row, or is the first to bring one, is the split's to say. */
extern "C" int device_append_init(void)
{
	return load_kernels(inbound_kernel, move_kernel);
}

extern "C" int device_stand(const struct device_stand *stand, struct launch_to to)
{
	int r = device_listen(stand, to);

	return r ? r : launch_early(called_kernel, stand, {BUS_BLOCKS, INBOUND_WARPS * 32, 0}, to);
}

extern "C" int device_move(const struct device_move *move, device_stream stream)
{
	struct launch_shape shape = {1, APPEND_WARPS * 32, 0};

	return launch_kernel(move_kernel, move, shape, false, {stream, NULL});
}
