/*
 * peer.cu - the exchange between devices that have met; see peer.h.
 *
 * exchange  a warp to a row and head: its entries go to their owners' inboxes, this device's own
 *           too; then those of rows that are this device's are merged from what all have sent, each
 *           as soon as its packets are there. The first block says to all others that this device
 *           has come, and waits until they have. Rows that nobody wants are left out; a row of
 *           which no device has anything gets O = 0, LSE = -inf. A device that does not come in
 *           time is named in *late, and nothing is merged any more; by the same word the host ends
 *           all waiting.
 */
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/merged.cuh"
#include "kernels/cuda/device/ptx.cuh"
#include "kernels/cuda/device/signals.cuh"
#include "kernels/cuda/attend/traits.cuh"
#include "peer.h"
#include "proto/arith.h"

#define WARPS 8u
#define LOOKS 256u /* between two at the clock and across the bus */
#define PARTS 4u /* that are looked for at a time */
#define TAG 0x80000000u /* no packet that was cleared has it */

#if __CUDA_ARCH__ >= 800
__device__ inline void word_put(uint32_t *to, uint32_t value)
{
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline uint32_t word_get(const uint32_t *from)
{
	uint32_t value;

	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
	return value;
}

/* What a lane has of an entry: N halves of O, and LSE. */
template <uint32_t N> struct part {
	static constexpr uint32_t packets = N > 4 ? N / 4 : 1;
	static constexpr uint32_t entry_bytes = packets * 32 * PEER_PACKET_BYTES;

	uint32_t o[2 * packets]; /* N / 2 of them */
	float lse;
};

template <uint32_t N> __device__ inline void load_halves(uint32_t *to, const void *from)
{
	if constexpr (N == 2) {
		to[0] = __ldcg((const uint32_t *)from);
	} else if constexpr (N == 4) {
		uint2 v = __ldcg((const uint2 *)from);

		to[0] = v.x;
		to[1] = v.y;
	} else {
		uint4 v = __ldcg((const uint4 *)from);

		to[0] = v.x;
		to[1] = v.y;
		to[2] = v.z;
		to[3] = v.w;
	}
}

/* O may lie at odd addresses; elsewhere a warp's stores are one piece, for the sake of those that
 * cross a bus. */
template <uint32_t N> __device__ inline void store_halves(char *to, const uint32_t *from)
{
	if ((uint64_t)to % (2 * N) != 0) {
		for (uint32_t i = 0; i < N; i++)
			((uint16_t *)to)[i] = (uint16_t)(from[i / 2] >> i % 2 * 16);
		return;
	}
	if constexpr (N == 2)
		*(uint32_t *)to = from[0];
	else if constexpr (N == 4)
		*(uint2 *)to = make_uint2(from[0], from[1]);
	else
		*(uint4 *)to = make_uint4(from[0], from[1], from[2], from[3]);
}

__device__ inline float2 unpack(uint32_t word, dtype_half)
{
	return __half22float2(*(const __half2 *)&word);
}

__device__ inline float2 unpack(uint32_t word, dtype_bf16)
{
	return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

/* The lane's columns of an entry of O: where they begin, and whether it has any. */
template <uint32_t N>
__device__ inline uint64_t columns_at(const struct device_exchange &x, uint64_t entry)
{
	return (entry * x.head_dim + threadIdx.x % 32 * N) * 2;
}

template <uint32_t N> __device__ inline bool has_columns(const struct device_exchange &x)
{
	return threadIdx.x % 32 * N < x.head_dim;
}

/* This lane's packet of an entry; the next one of it is 32 packets on. */
template <uint32_t N>
__device__ inline char *packet_at(const struct device_exchange &x, uint32_t at, uint32_t from,
				  uint32_t entry, uint32_t epoch)
{
	return x.inboxes[at] + ((uint64_t)(epoch & 1) * x.n_ranks + from) * x.slot_bytes +
	       (uint64_t)entry * part<N>::entry_bytes + threadIdx.x % 32 * PEER_PACKET_BYTES;
}

/* Returns the bytes that another device is given so: of O and LSE, as packets are the way's own
 * affair. */
template <uint32_t N>
__device__ inline uint32_t put_entry(const struct device_exchange &x, const struct device_row &dest,
				     uint32_t entry, uint32_t epoch)
{
	char *to = packet_at<N>(x, dest.pos, x.rank, entry, epoch);
	part<N> mine = {};

	if (has_columns<N>(x))
		load_halves<N>(mine.o, (const char *)x.o + columns_at<N>(x, entry));
	mine.lse = __ldcg(&x.lse[entry]);
#pragma unroll
	for (uint32_t k = 0; k < part<N>::packets; k++)
		packet_put(to + k * 32 * PEER_PACKET_BYTES,
			   {join_words(mine.o[2 * k], mine.o[2 * k + 1]),
			    join_words(__float_as_uint(mine.lse), epoch | TAG)});
	return dest.pos == x.rank ? 0 : x.head_dim * 2 + (uint32_t)sizeof(float);
}

/* ---- waiting -------------------------------------------------------------------------------- */

struct patience {
	uint32_t epoch; /* of what is waited for; 0: nothing is */
	uint64_t begin_ns;
	uint32_t looks;
	bool late; /* somebody is, here or for another warp */
};

/* False: no more waiting. rank is still missing. */
__device__ inline bool wait_on(const struct device_exchange &x, patience &p, uint32_t rank)
{
	if (++p.looks % LOOKS || p.late)
		return !p.late;
	p.late = *(volatile uint32_t *)x.late;
	if (!p.late && device_now_ns() - p.begin_ns > x.timeout_ns) {
		*(volatile uint32_t *)x.late = rank + 1;
		p.late = true;
	}
	return !p.late;
}

__device__ inline void wait_for_others(const struct device_exchange &x, patience &p)
{
	const uint32_t *come = x.come[x.rank] + threadIdx.x;

	if (threadIdx.x >= x.n_ranks || threadIdx.x == x.rank)
		return;
	while ((int32_t)(word_get(come) - p.epoch) < 0 && wait_on(x, p, threadIdx.x))
		;
}

/* Those of ranks first and on, as they come; cleared for the launch after next. False: one does not
 * come. */
template <uint32_t N>
__device__ inline bool take_parts(const struct device_exchange &x, uint32_t entry, uint32_t first,
				  part<N> (&to)[PARTS], patience &p)
{
	constexpr uint32_t packets = part<N>::packets;
	packet in[PARTS][packets];
	char *at[PARTS];
	uint32_t missing;
	auto is_rank = [&x, first](uint32_t i) { return first + i < x.n_ranks; };

#pragma unroll
	for (uint32_t i = 0; i < PARTS; i++)
		at[i] = packet_at<N>(x, x.rank, min(first + i, x.n_ranks - 1), entry, p.epoch);
	do {
		missing = 0;
#pragma unroll
		for (uint32_t i = 0; i < PARTS * packets; i++)
			if (is_rank(i / packets))
				in[i / packets][i % packets] = packet_get(
					at[i / packets] + i % packets * 32 * PEER_PACKET_BYTES);
#pragma unroll
		for (uint32_t i = 0; i < PARTS * packets; i++)
			missing |= (uint32_t)(is_rank(i / packets) &&
					      in[i / packets][i % packets].high >> 32 !=
						      (p.epoch | TAG))
				   << i / packets;
		missing = __reduce_or_sync(~0u, missing);
	} while (missing && __all_sync(~0u, wait_on(x, p, first + __ffs(missing) - 1)));
#pragma unroll
	for (uint32_t i = 0; i < PARTS; i++) {
		if (!is_rank(i))
			continue;
		for (uint32_t k = 0; k < packets; k++) {
			to[i].o[2 * k] = (uint32_t)in[i][k].low;
			to[i].o[2 * k + 1] = (uint32_t)(in[i][k].low >> 32);
			packet_put(at[i] + k * 32 * PEER_PACKET_BYTES, {0, 0});
		}
		to[i].lse = __uint_as_float((uint32_t)in[i][0].high);
	}
	return !missing;
}

/* The same, of what NCCL has brought. */
template <uint32_t N>
__device__ inline void load_parts(const struct device_exchange &x, uint32_t entry, uint32_t first,
				  part<N> (&to)[PARTS])
{
	uint64_t n = (uint64_t)x.n_rows * x.n_heads;

#pragma unroll
	for (uint32_t i = 0; i < PARTS; i++) {
		uint64_t at = min(first + i, x.n_ranks - 1) * n + entry;

		if (has_columns<N>(x))
			load_halves<N>(to[i].o, x.gathered + columns_at<N>(x, at));
		to[i].lse = __ldcg(&x.gathered_lse[at]);
	}
}

/* ---- merging: of outputs and LSEs, in order of ranks (merged.cuh) ---------------------------- */

template <typename DTYPE, uint32_t N>
__device__ inline void add_parts(struct merged<N> &s, const part<N> (&parts)[PARTS], uint32_t n)
{
	struct merge_state states[PARTS];

#pragma unroll
	for (uint32_t i = 0; i < PARTS; i++)
		if (i < n)
			states[i] = merge_of_lse(parts[i].lse);
	merged_add(s, states, n, [&parts](uint32_t i, uint32_t j) {
		float2 two = unpack(parts[i].o[j / 2], DTYPE());

		return j % 2 ? two.y : two.x;
	});
}

template <typename DTYPE, uint32_t N>
__device__ inline void store_entry(const struct device_exchange &x, const struct device_row &dest,
				   uint32_t head, const struct merged<N> &s)
{
	uint32_t out[N / 2];
	float scale = merge_scale(&s.state);

#pragma unroll
	for (uint32_t j = 0; j < N; j += 2)
		out[j / 2] = DTYPE::pack(s.o[j] * scale, s.o[j + 1] * scale);
	if (has_columns<N>(x))
		store_halves<N>((char *)dest.o + columns_at<N>(x, head), out);
	if (threadIdx.x % 32 == 0 && dest.lse)
		((float *)dest.lse)[head] = merge_lse(&s.state);
}

template <typename DTYPE, uint32_t N>
__device__ inline void merge_entry(const struct device_exchange &x, const struct device_row &dest,
				   uint32_t entry, patience &p)
{
	part<N> parts[PARTS];
	struct merged<N> s = merged_nothing<N>();

	for (uint32_t first = 0; first < x.n_ranks; first += PARTS) {
		if (x.gathered)
			load_parts<N>(x, entry, first, parts);
		else if (!take_parts<N>(x, entry, first, parts, p))
			return;
		add_parts<DTYPE, N>(s, parts, x.n_ranks - first);
	}
	store_entry<DTYPE, N>(x, dest, entry % x.n_heads, s);
}

/* All bytes that the launch gave others, to the last block that knows the epoch and says what its
 * warps gave; 0: others are to come. */
__device__ inline uint64_t know(const struct device_exchange &x, const uint32_t (&given)[WARPS],
				bool *ret_last)
{
	unsigned long long mine = PEER_BLOCK, all;

	for (uint32_t i = 0; i < WARPS; i++)
		mine += given[i];
	all = atomicAdd((unsigned long long *)&x.state->known, mine) + mine;
	*ret_last = all / PEER_BLOCK == gridDim.x;
	return *ret_last ? all % PEER_BLOCK : 0;
}

/* The last block to know the epoch makes it the next launch's. */
__device__ inline void leave(const struct device_exchange &x, uint32_t epoch, uint64_t begin_ns,
			     uint64_t given_bytes)
{
	struct peer_state *state = x.state;
	uint64_t end_ns = device_now_ns();

	state->known = 0;
	state->stamps[epoch % PEER_STAMPS] = {begin_ns, end_ns};
	state->exchanged.ns += end_ns - begin_ns;
	state->exchanged.given_bytes += given_bytes;
	state->epoch = epoch;
}
#endif

/* What comes before launch_wait was there before attention began. */
template <typename DTYPE, uint32_t N>
__global__ void __launch_bounds__(WARPS * 32, PEER_BLOCKS_AT_ONCE)
	exchange_kernel(const __grid_constant__ struct device_exchange x)
{
#if __CUDA_ARCH__ >= 800
	__shared__ uint32_t given[WARPS];
	uint32_t first = blockIdx.x * WARPS + threadIdx.x / 32, n = x.n_rows * x.n_heads,
		 step = gridDim.x * WARPS;
	uint32_t warp_bytes = 0;
	uint64_t given_bytes = 0;
	struct device_row dest = {}, mine = x.dests[min(first, n - 1) / x.n_heads];
	patience p = {};
	bool last = false;

	launch_wait();
	if (!x.crowded)
		launch_next();
	p.begin_ns = device_now_ns();
	if (!x.gathered) {
		p.epoch = *(volatile uint32_t *)&x.state->epoch + 1;
		if (blockIdx.x == 0 && threadIdx.x < x.n_ranks && threadIdx.x != x.rank)
			word_put(x.come[threadIdx.x] + x.rank, p.epoch);
	}
	for (uint32_t i = first; i < n && !x.gathered; i += step) {
		dest = i == first ? mine : x.dests[i / x.n_heads];
		if (dest.o)
			warp_bytes += put_entry<N>(x, dest, i, p.epoch);
	}
	if (threadIdx.x % 32 == 0)
		given[threadIdx.x / 32] = warp_bytes;
	__syncthreads();
	if (!x.gathered && threadIdx.x == 0)
		given_bytes = know(x, given, &last);
	for (uint32_t i = first; i < n; i += step) {
		dest = i == first ? mine : x.dests[i / x.n_heads];
		if (dest.o && dest.pos == x.rank)
			merge_entry<DTYPE, N>(x, dest, i, p);
	}
	if (!x.gathered && blockIdx.x == 0)
		wait_for_others(x, p);
	__syncthreads();
	if (last)
		leave(x, p.epoch, p.begin_ns, given_bytes);
#endif
}

typedef void (*exchange_function)(struct device_exchange);

static exchange_function find_kernel(uint32_t dim, bool bf16)
{
	return for_shape(dim, bf16, [](auto type, auto dim) -> exchange_function {
		return exchange_kernel<typename decltype(type)::type, kv_lane_values(dim.value)>;
	});
}

extern "C" int device_exchange_init()
{
#define EACH(dim) dim,
	static const uint32_t dims[] = {KV_HEAD_DIMS(EACH)};
#undef EACH
	int r = cudaSuccess;

	for (uint32_t i = 0; i < 2 * sizeof(dims) / sizeof(*dims) && r == cudaSuccess; i++)
		r = load_kernels(find_kernel(dims[i / 2], i % 2));
	return r;
}

extern "C" int device_exchange(const struct device_exchange *x, device_stream stream)
{
	uint32_t n_blocks = ceil_div(x->n_rows * x->n_heads, WARPS);
	struct launch_shape shape = {min_u32(n_blocks, x->most_blocks), WARPS * 32, 0};
	struct launch_to to = {stream, NULL};

	return launch_early(find_kernel(x->head_dim, x->bf16), x, shape, to);
}
