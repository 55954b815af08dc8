/*
 * results.cu - see results.h.
 *
 * chunk    a block for a chunk of a row's logits: its sum, its likeliest, and a copy of it where
 *          all logits are wanted.
 * row      a block for each row: sums and likeliest of all chunks become one, and are written to
 *          where the row wants them.
 *
 * An entry of the likeliest is a key: the logit's bits, as numbers that are ordered as logits are,
 * above the id's complement. So the largest key is the likeliest, and alike the lower id; 0 is
 * none, and what is no number has none. Keys that may be among the likeliest are sorted in shared
 * memory, by pairs at fixed places.
 */
#include "results.h"
#include "proto/arith.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "sums.cuh"

#include <math_constants.h>

#define THREADS 512u
#define WARPS (THREADS / 32)
#define OF_LOGITS (PROGRAM_WANT_TOP | PROGRAM_WANT_SCORE | PROGRAM_WANT_LOGITS)
#define ROW_WORDS (sizeof(struct program_row) / 4)

/* ---- keys ------------------------------------------------------------------------------------ */

__device__ inline uint64_t key_of(float logit, uint32_t id)
{
	uint32_t bits = __float_as_uint(logit + 0.0f); /* one zero for both */

	if (logit != logit)
		return 0;
	bits ^= bits >> 31 ? ~0u : 1u << 31;
	return (uint64_t)bits << 32 | (uint32_t)~id;
}

/* Falling, in place: n is a power of two. All of the block's threads take part. */
__device__ inline void sort(uint64_t *keys, uint32_t n)
{
	for (uint32_t run = 2; run <= n; run *= 2)
		for (uint32_t step = run / 2; step > 0; step /= 2) {
			__syncthreads();
			for (uint32_t i = threadIdx.x; i < n / 2; i += THREADS) {
				uint32_t low = 2 * i - (i & (step - 1)), high = low + step;
				uint64_t a = keys[low], b = keys[high];

				if ((a < b) == ((low & run) == 0)) {
					keys[low] = b;
					keys[high] = a;
				}
			}
		}
	__syncthreads();
}

/* A thread's part of RESULTS_CHUNK keys. */
#define CHUNK_EACH (RESULTS_CHUNK / THREADS)

struct some {
	uint64_t keys[CHUNK_EACH];
};

/* PROGRAM_TOP_MAX keys or more have upper words that are no lower: of each warp there are as many
 * of different lanes. */
__device__ inline uint32_t least_of_largest(const struct some &some)
{
	__shared__ uint32_t of_warps[WARPS];
	uint32_t most = 0, least = 0;

#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		most = max_u32(most, (uint32_t)(some.keys[i] >> 32));
#pragma unroll
	for (uint32_t i = 0; i < PROGRAM_TOP_MAX / WARPS; i++) {
		least = __reduce_max_sync(~0u, most);
		if (threadIdx.x % 32 == __ffs(__ballot_sync(~0u, most == least)) - 1)
			most = 0;
	}
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		of_warps[threadIdx.x / 32] = least;
	__syncthreads();
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		least = min_u32(least, of_warps[w]);
	return least;
}

/* The largest of all threads' keys come to the begin of to, falling: those alone are sorted that
 * may be among them. to has room for all, and is read no more when this is called. */
__device__ inline void find_largest(const struct some &some, uint64_t *to)
{
	__shared__ uint32_t n;
	uint32_t least, lane = threadIdx.x % 32, size = PROGRAM_TOP_MAX;

	if (threadIdx.x == 0)
		n = 0;
	least = least_of_largest(some);
#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++) {
		bool is = some.keys[i] && some.keys[i] >> 32 >= least;
		uint32_t those = __ballot_sync(~0u, is), first = 0;

		if (lane == 0 && those)
			first = atomicAdd(&n, __popc(those));
		first = __shfl_sync(~0u, first, 0);
		if (is)
			to[first + __popc(those & ((1u << lane) - 1))] = some.keys[i];
	}
	__syncthreads();
	while (size < n)
		size *= 2;
	for (uint32_t i = n + threadIdx.x; i < size; i += THREADS)
		to[i] = 0;
	sort(to, size);
}

/* ---- sums ------------------------------------------------------------------------------------ */

__device__ inline float max_of_block(float x)
{
	__shared__ float of_warps[WARPS];

#pragma unroll
	for (uint32_t lanes = 16; lanes > 0; lanes /= 2)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		of_warps[threadIdx.x / 32] = x;
	__syncthreads();
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		x = fmaxf(x, of_warps[w]);
	return x;
}

/* What exponents are taken from: where nothing is above -inf, nothing of it is subtracted. */
__device__ inline float base_of(float max)
{
	return max == -CUDART_INF_F ? 0 : max;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A thread's logits of a chunk; there is none where at is false. */
struct part {
	float logits[CHUNK_EACH];
	uint32_t first, end; /* of the chunk */

	__device__ inline uint32_t id(uint32_t i) const
	{
		return first + i * THREADS + threadIdx.x;
	}

	__device__ inline bool has(uint32_t i) const
	{
		return id(i) < end;
	}
};

__device__ inline void sum_up(const struct part &p, struct device_sum *to)
{
	float max = -CUDART_INF_F, sum = 0;

#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		max = p.has(i) ? fmaxf(max, p.logits[i]) : max;
	max = max_of_block(max);
#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		sum += p.has(i) ? expf(p.logits[i] - base_of(max)) : 0;
	sum = sum_of_block<WARPS>(sum);
	if (threadIdx.x == 0)
		*to = {max, sum};
}

__device__ inline void find_top(const struct part &p, uint64_t *to)
{
	__shared__ uint64_t keys[RESULTS_CHUNK];
	struct some some;

#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		some.keys[i] = p.has(i) ? key_of(p.logits[i], p.id(i)) : 0;
	find_largest(some, keys);
	if (threadIdx.x < PROGRAM_TOP_MAX)
		to[threadIdx.x] = keys[threadIdx.x];
}

__device__ inline void tell_all(const struct part &p, uint64_t out)
{
	float *to = (float *)(out + sizeof(struct program_row));

#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		if (p.has(i))
			to[p.id(i)] = p.logits[i];
}

__global__ void __launch_bounds__(THREADS)
	chunk_kernel(const __grid_constant__ struct device_results a)
{
	launch_wait();
	launch_next();

	uint32_t row = blockIdx.x / a.n_chunks, chunk = blockIdx.x % a.n_chunks;
	const struct program_wanted wanted = a.wanted[row];
	const float *logits = a.logits + row * a.stride;
	struct part p = {{0},
			 chunk * RESULTS_CHUNK,
			 min_u32((chunk + 1) * RESULTS_CHUNK, a.n_vocab)};

	if (!(wanted.want & OF_LOGITS))
		return;
#pragma unroll
	for (uint32_t i = 0; i < CHUNK_EACH; i++)
		p.logits[i] = p.has(i) ? logits[p.id(i)] * a.factor : 0;
	sum_up(p, &a.sums[blockIdx.x]);
	if (wanted.want & PROGRAM_WANT_TOP)
		find_top(p, a.tops + (uint64_t)blockIdx.x * PROGRAM_TOP_MAX);
	if (wanted.want & PROGRAM_WANT_LOGITS)
		tell_all(p, wanted.out);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Natural log of the sum over all chunks. */
__device__ inline double log_sum(const struct device_sum *sums, uint32_t n)
{
	float max = -CUDART_INF_F;
	double sum = 0;

	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		max = fmaxf(max, sums[i].max);
	max = max_of_block(max);
	for (uint32_t i = threadIdx.x; i < n; i += THREADS)
		if (sums[i].sum != 0)
			sum += (double)sums[i].sum *
			       exp((double)base_of(sums[i].max) - (double)base_of(max));
	return (double)base_of(max) + log(sum_of_block<WARPS>(sum));
}

/* The i-th of all chunks': first the largest of each, so that warps have about alike. */
__device__ inline uint64_t top_at(const uint64_t *tops, uint32_t n_chunks, uint32_t i)
{
	return tops[i % n_chunks * PROGRAM_TOP_MAX + i / n_chunks];
}

/* The likeliest of all chunks' come to the begin of keys: those known so far, and as many more as
 * there is room for, at a time. */
__device__ inline void merge_tops(const uint64_t *tops, uint32_t n_chunks, uint64_t *keys)
{
	uint32_t known = 0, n = n_chunks * PROGRAM_TOP_MAX;

	for (uint32_t at = 0; at < n;) {
		uint32_t more = min_u32(n - at, RESULTS_CHUNK - known);
		struct some some;

#pragma unroll
		for (uint32_t i = 0; i < CHUNK_EACH; i++) {
			uint32_t k = i * THREADS + threadIdx.x;

			some.keys[i] = k < known	  ? keys[k]
				       : k < known + more ? top_at(tops, n_chunks, at + k - known)
							  : 0;
		}
		find_largest(some, keys);
		at += more;
		known = PROGRAM_TOP_MAX;
	}
}

/* Thread i's. */
__device__ inline void take_top(const struct device_results &a, const float *logits,
				const uint64_t *keys, struct program_row *to)
{
	uint64_t key = keys[threadIdx.x];
	uint32_t id = ~(uint32_t)key;

	if (key == 0)
		return;
	to->top[threadIdx.x] = {id, logits[id] * a.factor};
	atomicMax(&to->n_top, threadIdx.x + 1);
}

__global__ void __launch_bounds__(THREADS)
	row_kernel(const __grid_constant__ struct device_results a)
{
	__shared__ uint64_t keys[RESULTS_CHUNK];
	__shared__ struct program_row row;

	launch_wait();
	launch_next();

	const struct program_wanted wanted = a.wanted[blockIdx.x];
	const float *logits = a.logits + blockIdx.x * a.stride;
	uint64_t first = (uint64_t)blockIdx.x * a.n_chunks;
	bool of_logits = wanted.want & OF_LOGITS;
	double lse = of_logits ? log_sum(a.sums + first, a.n_chunks) : 0;

	for (uint32_t i = threadIdx.x; i < ROW_WORDS; i += THREADS)
		((uint32_t *)&row)[i] = 0;
	if (wanted.want & PROGRAM_WANT_TOP)
		merge_tops(a.tops + first * PROGRAM_TOP_MAX, a.n_chunks, keys);
	__syncthreads();
	if (threadIdx.x == 0) {
		row.lse = of_logits ? (float)lse : CUDART_NAN_F;
		row.score = CUDART_NAN_F;
		if (wanted.want & PROGRAM_WANT_SCORE && wanted.next != PROGRAM_NONE)
			row.score = (float)((double)(logits[wanted.next] * a.factor) - lse);
	}
	if (wanted.want & PROGRAM_WANT_TOP && threadIdx.x < min_u32(wanted.n_top, PROGRAM_TOP_MAX))
		take_top(a, logits, keys, &row);
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < ROW_WORDS; i += THREADS)
		((uint32_t *)wanted.out)[i] = ((const uint32_t *)&row)[i];
}

/* ---- host ------------------------------------------------------------------------------------ */

extern "C" int device_results(const struct device_results *results, struct launch_to to)
{
	struct launch_shape chunks = {results->n_rows * results->n_chunks, THREADS, 0};
	int r = results->n_chunks ? launch_early(chunk_kernel, results, chunks, to) : 0;

	return r ? r : launch_early(row_kernel, results, {results->n_rows, THREADS, 0}, to);
}
