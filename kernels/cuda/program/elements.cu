/*
 * elements.cu - see elements.h. Sums are fp32, in an order that a row's length alone decides.
 *
 * begin     a block for each row: its angles in double, its embedding, its word of what is wanted.
 * finishing a thread for four outputs, or for one where their number is no multiple of four.
 * heads     a warp for each head of q, and for each of k with its v; with norms over all heads
 *           every block sums them up.
 *
 * begin, and the heads of a run's first layer, let the next launch come when what came before is
 * complete, so that attention finds its tables (batch_layers.h); the others as soon as they stand
 * there themselves: behind launch_wait all is in order, and before it they read nothing that a run
 * writes. So a layer's attention brings KV while its heads wait for their product.
 */
#include "elements.h"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/signals.cuh"
#include "sums.cuh"
#include "values.cuh"

#define BEGIN_THREADS 256u
#define FINISHING_THREADS 256u
#define HEADS_WARPS 8u

/* ---- begin ----------------------------------------------------------------------------------- */

__device__ inline void set_rotations(const struct device_begin &a, uint32_t row)
{
	uint32_t half = a.n_turned / 2;
	float *rotations = a.rotations + (uint64_t)row * a.n_turned;
	double position = a.positions[row];

	for (uint32_t i = threadIdx.x; i < half; i += BEGIN_THREADS) {
		double sine, cosine;

		sincos(position * a.inv_freq[i], &sine, &cosine);
		rotations[i] = (float)cosine * a.rope_factor;
		rotations[half + i] = (float)sine * a.rope_factor;
	}
}

__global__ void __launch_bounds__(BEGIN_THREADS)
	begin_kernel(const __grid_constant__ struct device_begin a)
{
	uint32_t row = blockIdx.x;

#if __CUDA_ARCH__ >= 800
	if (row == 0 && threadIdx.x == 0)
		*a.begin_ns = device_now_ns();
#endif
	launch_wait();
	launch_next();
	if (row < a.n_wanted && threadIdx.x == 0)
		a.wanted_to[row] = a.wanted_from[row];
	if (threadIdx.x == 32)
		a.places_to[row] = a.places_from[row];
	set_rotations(a, row);
	if (!a.x)
		return;

	uint64_t from = (uint64_t)a.ids[row] * a.hidden;

	for (uint32_t i = threadIdx.x; i < a.hidden; i += BEGIN_THREADS)
		a.x[(uint64_t)row * a.x_stride + i] = vector_at(a.embed, from + i) * a.embed_factor;
}

/* ---- biases and gates ------------------------------------------------------------------------ */

__device__ inline float bias_at(const struct device_finishing &a, uint32_t i)
{
#pragma unroll
	for (uint32_t w = 0; w < 3; w++) {
		if (i < a.n_out[w])
			return a.bias[w].at ? vector_at(a.bias[w], i) : 0;
		i -= a.n_out[w];
	}
	return 0;
}

template <uint32_t N> struct values {
	float of[N];
};

template <uint32_t N>
__device__ inline struct values<N> take(const struct device_finishing &a, const float *made,
					uint32_t i) {
	struct values<N> v;

	if (N == 4)
		*(float4 *)v.of = *(const float4 *)(made + i);
	else
		v.of[0] = made[i];
#pragma unroll
	for (uint32_t j = 0; j < N; j++)
		v.of[j] += bias_at(a, i + j);
	return v;
}

template <uint32_t N>
__global__ void __launch_bounds__(FINISHING_THREADS)
	finishing_kernel(const __grid_constant__ struct device_finishing a)
{
	launch_next();
	launch_wait();

	uint32_t per_row = ceil_div(a.n, FINISHING_THREADS * N), row = blockIdx.x / per_row;
	uint32_t i = (blockIdx.x % per_row * FINISHING_THREADS + threadIdx.x) * N;
	const float *made = a.made + (uint64_t)row * a.stride;

	if (i >= a.n)
		return;

	struct values<N> v = take<N>(a, made, i);

	if (a.gated) {
		struct values<N> u = take<N>(a, made, a.n + i);

#pragma unroll
		for (uint32_t j = 0; j < N; j++)
			v.of[j] = act(a.act, v.of[j]) * u.of[j];
	}
	if constexpr (N == 4)
		put_four(a.out, row, i, v.of);
	else
		put(a.out, row, i, v.of[0]);
}

/* ---- heads ----------------------------------------------------------------------------------- */

__device__ inline float squares_of(const float *x, uint32_t first, uint32_t step, uint32_t n)
{
	float squares = 0;

	for (uint32_t i = first; i < n; i += step)
		squares += x[i] * x[i];
	return squares;
}

/* What a head's values are multiplied by before its weight: 1, where there are no norms. All of the
 * block's threads come by. */
__device__ inline float factor_of(const struct device_heads &a, const float *row, uint32_t head)
{
	const uint32_t q = a.n_q * a.dim, kv = a.n_kv * a.dim;

	if (!a.q_norm.at)
		return 1;
	if (!a.wide) {
		float squares = sum_of_warp(
			squares_of(row + (uint64_t)head * a.dim, threadIdx.x % 32, 32, a.dim));

		return 1 / sqrtf(squares / a.dim + a.eps);
	}

	float of_q = sum_of_block<HEADS_WARPS>(squares_of(row, threadIdx.x, HEADS_WARPS * 32, q));
	float of_k =
		sum_of_block<HEADS_WARPS>(squares_of(row + q, threadIdx.x, HEADS_WARPS * 32, kv));

	return head < a.n_q ? 1 / sqrtf(of_q / q + a.eps) : 1 / sqrtf(of_k / kv + a.eps);
}

__device__ inline float weight_of(const struct device_heads &a, uint32_t head, uint32_t i)
{
	if (head < a.n_q)
		return vector_at(a.q_norm, a.wide ? head * a.dim + i : i);
	return vector_at(a.k_norm, a.wide ? (head - a.n_q) * a.dim + i : i);
}

/* Element i goes with the one half a turn away. */
__device__ inline float turned(const float *x, uint32_t i, const float *rotations,
			       uint32_t n_turned)
{
	uint32_t half = n_turned / 2;

	if (i >= n_turned)
		return x[i];
	if (i < half)
		return x[i] * rotations[i] - x[i + half] * rotations[half + i];
	return x[i] * rotations[i - half] + x[i - half] * rotations[i];
}

/* Eight values, as they are stored. */
struct chunk {
	float of[KV_CHUNK_VALUES];
};

__device__ inline uint4 pack(const struct chunk &c, bool bf16)
{
	uint32_t pairs[KV_CHUNK_VALUES / 2];

#pragma unroll
	for (uint32_t i = 0; i < KV_CHUNK_VALUES / 2; i++)
		pairs[i] = bf16 ? dtype_bf16::pack(c.of[2 * i], c.of[2 * i + 1])
				: dtype_half::pack(c.of[2 * i], c.of[2 * i + 1]);
	return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ inline struct chunk chunk_at(const float *x)
{
	struct chunk c;

#pragma unroll
	for (uint32_t i = 0; i < KV_CHUNK_VALUES; i += 4)
		*(float4 *)&c.of[i] = *(const float4 *)&x[i];
	return c;
}

/* The chunk from element at on; both halves of what is turned are whole chunks. */
__device__ inline struct chunk turned_at(const float *x, uint32_t at, const float *rotations,
					 uint32_t half)
{
	bool upper = at >= half;
	uint32_t i = upper ? at - half : at;
	struct chunk c = chunk_at(x + at), other = chunk_at(x + (upper ? i : i + half));
	struct chunk cosine = chunk_at(rotations + i), sine = chunk_at(rotations + half + i);

#pragma unroll
	for (uint32_t j = 0; j < KV_CHUNK_VALUES; j++) {
		float with = other.of[j] * sine.of[j];

		c.of[j] = c.of[j] * cosine.of[j] + (upper ? with : -with);
	}
	return c;
}

__device__ inline uint4 turned_chunk(const struct device_heads &a, const float *x, uint32_t chunk,
				     const float *rotations)
{
	uint32_t at = chunk * KV_CHUNK_VALUES, half = a.n_turned / 2;
	bool whole = half % KV_CHUNK_VALUES == 0;
	struct chunk c = chunk_at(x + at);

	if (rotations && whole && at < a.n_turned)
		return pack(turned_at(x, at, rotations, half), a.bf16);
#pragma unroll
	for (uint32_t i = 0; i < KV_CHUNK_VALUES && rotations && !whole; i++)
		c.of[i] = turned(x, at + i, rotations, a.n_turned);
	return pack(c, a.bf16);
}

/* A head's K before it is turned, and V as it was made. */
struct made_kv {
	const float *k, *v;
	const float *rotations; /* of K; NULL: there are none */
};

/* As append.cu does: a token whose V is not finite is K = NaN, V = 0. */
__device__ inline void put_kv(const struct device_heads &a, const struct device_place &place,
			      uint32_t head, const struct made_kv &made)
{
	uint32_t chunks = a.dim / KV_CHUNK_VALUES, lane = threadIdx.x % 32;
	char *to = a.pool + head * a.head_bytes + (uint64_t)place.source * KV_SOURCE_BYTES;
	uint4 values[KV_HEAD_DIM_MOST / 128];
	bool bad = false;

#pragma unroll
	for (uint32_t n = 0; n < KV_HEAD_DIM_MOST / 128; n++) {
		uint32_t i = n * 32 + lane;

		values[n] = make_uint4(0, 0, 0, 0);
		if (i < chunks)
			values[n] = turned_chunk(a, made.k, i, made.rotations);
		else if (i < 2 * chunks)
			values[n] = pack(chunk_at(made.v + (i - chunks) * KV_CHUNK_VALUES), a.bf16);
		bad = bad || (i >= chunks && i < 2 * chunks && not_finite(values[n], a.bf16));
	}
	bad = __any_sync(~0u, bad);
#pragma unroll
	for (uint32_t n = 0; n < KV_HEAD_DIM_MOST / 128; n++) {
		uint32_t i = n * 32 + lane, of_v = i >= chunks, chunk = i - of_v * chunks;
		uint32_t fill = of_v ? 0 : ~0u;

		if (bad)
			values[n] = make_uint4(fill, fill, fill, fill);
		if (i < 2 * chunks && place.source != DEVICE_NONE)
			*(uint4 *)(to + of_v * kv_part_bytes(a.dim) +
				   kv_chunk_offset(a.dim, place.row, chunk)) = values[n];
	}
}

__device__ inline void put_q(const struct device_heads &a, uint32_t row, uint32_t head,
			     const float *x, const float *rotations)
{
	char *to = a.q + ((uint64_t)row * a.n_q + head) * a.dim * KV_VALUE_BYTES;

	for (uint32_t i = threadIdx.x % 32; i < a.dim / KV_CHUNK_VALUES; i += 32)
		*(uint4 *)(to + i * KV_CHUNK_BYTES) = turned_chunk(a, x, i, rotations);
}

__global__ void __launch_bounds__(HEADS_WARPS * 32)
	heads_kernel(const __grid_constant__ struct device_heads a)
{
	__shared__ __align__(16) float heads[HEADS_WARPS][KV_HEAD_DIM_MOST];

	if (!a.first)
		launch_next();
	launch_wait();
	launch_next();

	uint32_t n_heads = a.n_q + a.n_kv, per_row = ceil_div(n_heads, HEADS_WARPS);
	uint32_t row = blockIdx.x / per_row;
	uint32_t head = blockIdx.x % per_row * HEADS_WARPS + threadIdx.x / 32;
	uint32_t known = min_u32(head, n_heads - 1); /* whose warp comes by for nothing */
	const float *from = a.qkv + (uint64_t)row * a.stride;
	const float *rotations = a.rotations ? a.rotations + (uint64_t)row * a.n_turned : NULL;
	float *x = heads[threadIdx.x / 32], factor = factor_of(a, from, known);

#pragma unroll
	for (uint32_t t = 0; t < KV_HEAD_DIM_MOST / 128; t++) {
		uint32_t i = t * 128 + threadIdx.x % 32 * 4;

		if (i < a.dim)
			*(float4 *)&x[i] = *(const float4 *)(from + known * a.dim + i);
	}
	for (uint32_t i = threadIdx.x % 32 * 4; i < a.dim && a.q_norm.at; i += 128)
		for (uint32_t j = i; j < i + 4; j++)
			x[j] = x[j] * factor * weight_of(a, known, j);
	__syncwarp();
	if (head < a.n_q)
		put_q(a, row, head, x, rotations);
	else if (head < n_heads)
		put_kv(a, a.places[row], head - a.n_q,
		       {x, from + (a.n_kv + head) * a.dim, rotations});
}

#define QUICK_DIM 128u

__device__ inline uint2 pack_four(const float4 &x, bool bf16)
{
	return bf16 ? make_uint2(dtype_bf16::pack(x.x, x.y), dtype_bf16::pack(x.z, x.w))
		    : make_uint2(dtype_half::pack(x.x, x.y), dtype_half::pack(x.z, x.w));
}

/* Four values of a lane, the other half of whose turn is half a warp away. */
__device__ inline float4 turned_four(const float4 &x, const float *rotations)
{
	const uint32_t lane = threadIdx.x % 32, at = lane % 16 * 4;
	const float4 c = *(const float4 *)(rotations + at);
	const float4 s = *(const float4 *)(rotations + QUICK_DIM / 2 + at);
	const float sign = lane < 16 ? -1 : 1;
	float4 other;

	other.x = __shfl_xor_sync(~0u, x.x, 16) * s.x * sign;
	other.y = __shfl_xor_sync(~0u, x.y, 16) * s.y * sign;
	other.z = __shfl_xor_sync(~0u, x.z, 16) * s.z * sign;
	other.w = __shfl_xor_sync(~0u, x.w, 16) * s.w * sign;
	return make_float4(x.x * c.x + other.x, x.y * c.y + other.y, x.z * c.z + other.z,
			   x.w * c.w + other.w);
}

__device__ inline void put_kv_quick(const struct device_heads &a, const struct device_place &place,
				    uint32_t head, const float4 &x, const float4 &v)
{
	const uint32_t lane = threadIdx.x % 32;
	char *to = a.pool + head * a.head_bytes + (uint64_t)place.source * KV_SOURCE_BYTES +
		   kv_chunk_offset(QUICK_DIM, place.row, lane / 2) + lane % 2 * 8;
	uint2 key = pack_four(x, a.bf16), value = pack_four(v, a.bf16);

	if (__any_sync(~0u, not_finite(value.x, a.bf16) || not_finite(value.y, a.bf16))) {
		key = make_uint2(~0u, ~0u);
		value = make_uint2(0, 0);
	}
	if (place.source == DEVICE_NONE)
		return;
	*(uint2 *)to = key;
	*(uint2 *)(to + kv_part_bytes(QUICK_DIM)) = value;
}

/* The same of heads of 128 values, turned whole or not at all, without norms: nothing is handed
 * over in memory, and all lanes have something to do. */
__global__ void __launch_bounds__(HEADS_WARPS * 32, 8)
	heads_quick_kernel(const __grid_constant__ struct device_heads a)
{
	if (!a.first)
		launch_next();
	launch_wait();
	launch_next();

	uint32_t n_heads = a.n_q + a.n_kv, per_row = ceil_div(n_heads, HEADS_WARPS);
	uint32_t row = blockIdx.x / per_row, lane = threadIdx.x % 32;
	uint32_t head = blockIdx.x % per_row * HEADS_WARPS + threadIdx.x / 32;
	const float4 *from = (const float4 *)(a.qkv + (uint64_t)row * a.stride) + lane;
	float4 x, v;

	if (head >= n_heads)
		return;
	x = from[head * (QUICK_DIM / 4)];
	v = from[(head < a.n_q ? head : head + a.n_kv) * (QUICK_DIM / 4)];
	if (a.rotations)
		x = turned_four(x, a.rotations + (uint64_t)row * a.n_turned);
	if (head < a.n_q)
		((uint2 *)a.q)[((uint64_t)row * a.n_q + head) * (QUICK_DIM / 4) + lane] =
			pack_four(x, a.bf16);
	else
		put_kv_quick(a, a.places[row], head - a.n_q, x, v);
}

/* ---- host ------------------------------------------------------------------------------------ */

extern "C" int device_begin(const struct device_begin *begin, struct launch_to to)
{
	return launch_early(begin_kernel, begin, {begin->n_rows, BEGIN_THREADS, 0}, to);
}

static bool by_fours(const struct device_finishing *a)
{
	return a->n % 4 == 0 && a->stride % 4 == 0 && take_fours(&a->out);
}

extern "C" int device_finishing(const struct device_finishing *finishing, struct launch_to to)
{
	uint32_t each = FINISHING_THREADS * (by_fours(finishing) ? 4 : 1);
	struct launch_shape shape = {ceil_div(finishing->n, each) * finishing->n_rows,
				     FINISHING_THREADS, 0};

	return launch_early(by_fours(finishing) ? finishing_kernel<4> : finishing_kernel<1>,
			    finishing, shape, to);
}

extern "C" int device_heads(const struct device_heads *heads, struct launch_to to)
{
	uint32_t per_row = ceil_div(heads->n_q + heads->n_kv, HEADS_WARPS);

	bool quick = heads->dim == QUICK_DIM && !heads->q_norm.at && heads->stride % 4 == 0 &&
		     (!heads->rotations || heads->n_turned == QUICK_DIM);

	return launch_early(quick ? heads_quick_kernel : heads_kernel, heads,
			    {heads->n_rows * per_row, HEADS_WARPS * 32, 0}, to);
}
