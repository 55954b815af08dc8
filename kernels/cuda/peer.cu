/*
 * peer.cu - the exchange between devices that have met; see peer.h.
 *
 * exchange  a warp to a row and head: its block's entries go to their owners, then the block's flag to every other device; then
 *           the same entries, where they are this device's, are merged from what all have sent. Blocks of all devices have the same
 *           entries, so that a block waits for one flag of each device. Rows that nobody wants are left out; a row of which
 *           no device has anything gets O = 0, LSE = -inf. A device that does not come in time is named in *late, and
 *           nothing is merged any more.
 */
#include "hopper.cuh"
#include "launch.cuh"
#include "peer.h"

#define WARPS 8u
#define LOG2E 1.4426950408889634f
#define LOOKS 256u /* at a flag, between two at the clock and across the bus */

#if __CUDA_ARCH__ >= 800
__device__ inline void flag_set(uint32_t *flag, uint32_t value)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ inline uint32_t flag_get(const uint32_t *flag)
{
	uint32_t value;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
	return value;
}

__device__ inline uint64_t now_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
}

/* N halves of a lane, as words. */
template <uint32_t N> struct halves {
	uint32_t words[N / 2];
};

template <uint32_t N> __device__ inline void load_halves(halves<N> &to, const void *from)
{
	if constexpr (N == 2) {
		to.words[0] = __ldcg((const uint32_t *)from);
	} else if constexpr (N == 4) {
		uint2 v = __ldcg((const uint2 *)from);

		to.words[0] = v.x;
		to.words[1] = v.y;
	} else {
		uint4 v = __ldcg((const uint4 *)from);

		to.words[0] = v.x;
		to.words[1] = v.y;
		to.words[2] = v.z;
		to.words[3] = v.w;
	}
}

template <uint32_t N> __device__ inline void store_halves(void *to, const halves<N> &from)
{
	if constexpr (N == 2)
		*(uint32_t *)to = from.words[0];
	else if constexpr (N == 4)
		*(uint2 *)to = make_uint2(from.words[0], from.words[1]);
	else
		*(uint4 *)to = make_uint4(from.words[0], from.words[1], from.words[2], from.words[3]);
}

__device__ inline float2 unpack(uint32_t word, dtype_half)
{
	return __half22float2(*(const __half2 *)&word);
}

__device__ inline float2 unpack(uint32_t word, dtype_bf16)
{
	return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

__device__ inline char *slot_of(const struct device_exchange &x, uint32_t at, uint32_t from, uint32_t epoch)
{
	return x.inboxes[at] + ((uint64_t)(epoch & 1) * x.n_ranks + from) * x.slot_bytes;
}

/* The row is wanted, and its owner is another. */
template <uint32_t N>
__device__ inline void put_entry(const struct device_exchange &x, uint32_t entry, uint32_t epoch)
{
	const struct device_row *dest = &x.dests[entry / x.n_heads];
	uint32_t lane = threadIdx.x % 32, owner = dest->pos;
	halves<N> o;
	char *to;

	if (!dest->o || owner == x.rank)
		return;
	to = slot_of(x, owner, x.rank, epoch) + (uint64_t)entry * (16 + 64 * N);
	load_halves<N>(o, (const char *)x.o + ((uint64_t)entry * 32 + lane) * 2 * N);
	if (lane == 0)
		*(float *)to = __ldcg(&x.lse[entry]);
	store_halves<N>(to + 16 + lane * 2 * N, o);
}

/* Of the entry, as the rank has it. */
template <uint32_t N>
__device__ inline const char *find_entry(const struct device_exchange &x, uint32_t entry, uint32_t rank, uint32_t epoch,
					 const float **ret_lse)
{
	uint64_t n = (uint64_t)x.n_rows * x.n_heads;
	const char *at;

	if (x.gathered) {
		*ret_lse = (const float *)(x.gathered + x.n_ranks * n * 64 * N) + rank * n + entry;
		return x.gathered + (rank * n + entry) * 64 * N;
	}
	if (rank == x.rank) {
		*ret_lse = &x.lse[entry];
		return (const char *)x.o + (uint64_t)entry * 64 * N;
	}
	at = slot_of(x, x.rank, rank, epoch) + (uint64_t)entry * (16 + 64 * N);
	*ret_lse = (const float *)at;
	return at + 16;
}

__device__ inline float warp_max(float v)
{
#pragma unroll
	for (uint32_t i = 16; i; i /= 2)
		v = fmaxf(v, __shfl_xor_sync(~0u, v, i));
	return v;
}

/* Lane i has the weight of rank i: the merge of parts whose sum is 1 and whose max is LSE, in order of ranks. */
template <typename DTYPE, uint32_t N>
__device__ inline void merge_entry(const struct device_exchange &x, uint32_t entry, uint32_t epoch)
{
	const struct device_row dest = x.dests[entry / x.n_heads];
	uint32_t lane = threadIdx.x % 32, head = entry % x.n_heads;
	const float *at_lse = NULL;
	float lse = -INFINITY, max, weight, sum = 0, o[N] = {};
	halves<N> out;

	if (!dest.o || dest.pos != x.rank)
		return;
	if (lane < x.n_ranks) {
		find_entry<N>(x, entry, lane, epoch, &at_lse);
		lse = __ldcg(at_lse);
	}
	max = warp_max(lse);
	weight = lse == -INFINITY ? 0 : exp2_fast((lse - max) * LOG2E);
#pragma unroll 4
	for (uint32_t rank = 0; rank < x.n_ranks; rank++) {
		const char *from = find_entry<N>(x, entry, rank, epoch, &at_lse);
		float w = __shfl_sync(~0u, weight, rank);
		halves<N> part;

		load_halves<N>(part, from + lane * 2 * N);
		sum += w;
#pragma unroll
		for (uint32_t j = 0; j < N / 2; j++) {
			float2 two = unpack(part.words[j], DTYPE());

			o[2 * j] += w * two.x;
			o[2 * j + 1] += w * two.y;
		}
	}
	sum = sum == 0 ? 0 : 1 / sum;
#pragma unroll
	for (uint32_t j = 0; j < N; j += 2)
		out.words[j / 2] = DTYPE::pack(o[j] * sum, o[j + 1] * sum);
	for (uint32_t j = 0; j < N / 2; j++)
		((uint32_t *)(dest.o + ((uint64_t)head * 32 + lane) * 2 * N))[j] = out.words[j];
	if (lane == 0 && dest.lse)
		((float *)dest.lse)[head] = sum == 0 ? -INFINITY : max - log2f(sum) / LOG2E;
}

/* This block's flag of every other device. False: one has not come in time, now or before. */
__device__ inline bool wait_for_all(const struct device_exchange &x, uint32_t epoch)
{
	uint32_t rank = threadIdx.x;
	uint64_t start = now_ns();
	bool late = false;

	if (rank < x.n_ranks && rank != x.rank) {
		const uint32_t *flag = x.flags[x.rank] + rank * PEER_BLOCKS + blockIdx.x;

		for (uint32_t looks = 1; (int32_t)(flag_get(flag) - epoch) < 0 && !late; looks++)
			late = looks % LOOKS == 0 && (now_ns() - start > x.timeout_ns || *(volatile uint32_t *)x.late);
		if (late && !*(volatile uint32_t *)x.late)
			*(volatile uint32_t *)x.late = rank + 1;
	}
	return !__syncthreads_or(late);
}

/* The last block makes the epoch the next launch's. */
__device__ inline void leave(const struct device_exchange &x, uint32_t epoch)
{
	if (threadIdx.x != 0)
		return;
	__threadfence();
	if (atomicAdd(&x.state->n_blocks, 1) != gridDim.x - 1)
		return;
	x.state->n_blocks = 0;
	x.state->epoch = epoch;
}
#endif

template <typename DTYPE, uint32_t N>
__global__ void __launch_bounds__(WARPS * 32) exchange_kernel(const __grid_constant__ struct device_exchange x)
{
#if __CUDA_ARCH__ >= 800
	uint32_t first = blockIdx.x * WARPS + threadIdx.x / 32, n = x.n_rows * x.n_heads, step = gridDim.x * WARPS, epoch;

	launch_wait();
	if (x.gathered) {
		launch_next();
		for (uint32_t i = first; i < n; i += step)
			merge_entry<DTYPE, N>(x, i, 0);
		return;
	}
	epoch = *(volatile uint32_t *)&x.state->epoch + 1;
	for (uint32_t i = first; i < n; i += step)
		put_entry<N>(x, i, epoch);
	__syncthreads();
	if (threadIdx.x < x.n_ranks && threadIdx.x != x.rank)
		flag_set(x.flags[threadIdx.x] + x.rank * PEER_BLOCKS + blockIdx.x, epoch);

	bool all = wait_for_all(x, epoch);

	/* not before: on a device that two share, what comes next would keep the other from ever coming */
	launch_next();
	for (uint32_t i = first; all && i < n; i += step)
		merge_entry<DTYPE, N>(x, i, epoch);
	__syncthreads();
	leave(x, epoch);
#endif
}

/* A kernel is loaded where it is first launched, which must not be while another device waits for this one. */
extern "C" int device_exchange_init()
{
	void (*const kernels[])(struct device_exchange) = {
		exchange_kernel<dtype_half, 2>, exchange_kernel<dtype_half, 4>, exchange_kernel<dtype_half, 8>,
		exchange_kernel<dtype_bf16, 2>, exchange_kernel<dtype_bf16, 4>, exchange_kernel<dtype_bf16, 8>,
	};
	cudaFuncAttributes attributes;
	cudaError_t r = cudaSuccess;

	for (auto kernel : kernels)
		r = r == cudaSuccess ? cudaFuncGetAttributes(&attributes, (const void *)kernel) : r;
	return r;
}

extern "C" int device_exchange(const struct device_exchange *x, device_stream stream)
{
	uint32_t n_blocks = (x->n_rows * x->n_heads + WARPS - 1) / WARPS;
	struct launch_shape shape = {n_blocks < PEER_BLOCKS ? n_blocks : PEER_BLOCKS, WARPS * 32, 0};
	bool bf16 = x->bf16;

	switch (x->head_dim) {
	case 64:
		return launch_early(bf16 ? exchange_kernel<dtype_bf16, 2> : exchange_kernel<dtype_half, 2>, x, shape,
				    stream);
	case 128:
		return launch_early(bf16 ? exchange_kernel<dtype_bf16, 4> : exchange_kernel<dtype_half, 4>, x, shape,
				    stream);
	default:
		return launch_early(bf16 ? exchange_kernel<dtype_bf16, 8> : exchange_kernel<dtype_half, 8>, x, shape,
				    stream);
	}
}
