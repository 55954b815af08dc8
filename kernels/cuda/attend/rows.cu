/*
 * rows.cu - what is done row by row: new tokens into pages, Q to where it is read, tokens from page
 * to page.
 *
 * inbound  a warp for every new token and KV head (a token whose V is not finite: see device.h),
 *          for every 512 bytes of Q that are to be brought, and for as much of the rows' table.
 * stand    one warp: listens to the host, and tells
 * called   which does as inbound does, of what it hears. It begins when stand has heard, and waits
 *          for no more of it.
 * outbound a block for every row of O that must not lie where attention can write it.
 * finish   two warps: a thread of one tells the host that the batch is done, the other streams that
 *          wait on the device.
 * move     one block: all layers and heads of one token; warps take head blocks in turn.
 */
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/device/launch.cuh"

#define WARPS 4u

#if __CUDA_ARCH__ >= 800
__device__ inline uint64_t device_now_ns()
{
	uint64_t now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	return now;
}
#endif

#if __CUDA_ARCH__ >= 800
/* Bytes of chunk c (8 values) of a row in its group; K and V each begin a half of the group. */
__device__ inline uint32_t chunk_offset(uint32_t row, uint32_t chunk)
{
	return chunk / 8 * 1024 + row * 128 + (((chunk & 7) ^ row) << 4);
}

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
/* Two values: is one of them infinite or NaN? */
__device__ inline bool not_finite(uint32_t two, bool bf16)
{
	uint32_t exponent = bf16 ? 0x7f80u : 0x7c00u;

	return (two & exponent) == exponent || (two >> 16 & exponent) == exponent;
}

__device__ inline bool not_finite(const uint4 &v, bool bf16)
{
	return not_finite(v.x, bf16) || not_finite(v.y, bf16) || not_finite(v.z, bf16) ||
	       not_finite(v.w, bf16);
}

/* A lane's chunks of K and V of a token: two lots of 32 chunks at most. */
template <uint32_t N>
__device__ inline void append_token(const struct device_inbound &a, const struct device_token &at,
				    uint32_t head, char *group)
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
		*(uint4 *)(group + (i < chunks ? 0 : 16 * dim) + chunk_offset(at.row, chunk)) =
			v[n];
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
	uint32_t parts = (a.copy_bytes + COPY_BYTES - 1) / COPY_BYTES,
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
	uint64_t parts = (a.copy_bytes + COPY_BYTES - 1) / COPY_BYTES;
	uint64_t rows =
		((uint64_t)a.n_rows * sizeof(struct device_row) + COPY_BYTES - 1) / COPY_BYTES;
	uint64_t patches = (a.n_patches + 31) / 32;

	return (uint64_t)a.n_tokens * a.shape.n_kv_heads + a.n_copies * parts +
	       (rows > patches ? rows : patches);
}

#if __CUDA_ARCH__ >= 800
__device__ inline void bring(const struct device_inbound &a, uint64_t warp)
{
	uint64_t n_appends = (uint64_t)a.n_tokens * a.shape.n_kv_heads;
	uint64_t n_parts = (uint64_t)a.n_copies * ((a.copy_bytes + COPY_BYTES - 1) / COPY_BYTES);

	if (warp < n_appends) {
		struct device_token at = a.tokens[warp / a.shape.n_kv_heads];
		uint32_t head = warp % a.shape.n_kv_heads;
		char *group = a.pool + head * a.shape.head_bytes +
			      (uint64_t)at.source * DEVICE_SOURCE_BYTES;

		if (a.shape.head_dim <= 128)
			append_token<1>(a, at, head, group);
		else
			append_token<2>(a, at, head, group);
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
	launch_wait();
	launch_next();
	for (uint64_t end = inbound_warps(a); warp < end; warp += step)
		bring(a, warp);
#endif
}

#if __CUDA_ARCH__ >= 800
__device__ inline ulonglong2 packet_load(const void *at)
{
	ulonglong2 v;

	asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
		     : "=l"(v.x), "=l"(v.y)
		     : "l"(at)
		     : "memory");
	return v;
}

__device__ inline void packet_store(void *at, ulonglong2 v)
{
	asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(v.x), "l"(v.y)
		     : "memory");
}

/* A warp, until the call is there whole or there is none; a lane has its packet. patience_ns 0: for
 * ever. */
__device__ inline ulonglong2 hear(const struct device_call *call, uint64_t id, uint64_t patience_ns)
{
	uint64_t begin_ns = device_now_ns();
	uint32_t lane = threadIdx.x % DEVICE_CALL_WORDS;

	for (;;) {
		ulonglong2 packet = packet_load(&call->packets[lane]);

		if (__all_sync(~0u, packet.y == DEVICE_CALL_GO(id)))
			return packet;
		if (__any_sync(~0u,
			       packet.y == DEVICE_CALL_LEAVE(id) ||
				       (patience_ns && device_now_ns() - begin_ns > patience_ns)))
			return make_ulonglong2(0, DEVICE_CALL_LEAVE(id));
	}
}

/* Nothing of any row is wanted. */
__device__ inline void empty_rows(const struct device_stand &a)
{
	uint32_t n = a.n_rows * (uint32_t)(sizeof(*a.rows) / 16);

	for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		((uint4 *)a.rows)[i] = make_uint4(0, 0, 0, 0);
}
#endif

/* One warp, so that while it waits it is in nobody's way. */
__global__ void __launch_bounds__(32) stand_kernel(const __grid_constant__ struct device_stand a)
{
#if __CUDA_ARCH__ >= 800
	ulonglong2 packet;

	launch_wait();
	packet = hear(a.call, a.id, a.patience_ns);
	if (threadIdx.x < DEVICE_CALL_WORDS)
		packet_store(&a.heard->packets[threadIdx.x], packet);
	__threadfence();
	launch_next();
	if (threadIdx.x == 0)
		*(volatile uint64_t *)a.answer = packet.y;
#endif
}

__global__ void __launch_bounds__(INBOUND_WARPS * 32)
	called_kernel(const __grid_constant__ struct device_stand a)
{
#if __CUDA_ARCH__ >= 800
	__shared__ uint64_t words[DEVICE_CALL_WORDS];
	__shared__ bool called;
	uint64_t warp = (uint64_t)blockIdx.x * INBOUND_WARPS + threadIdx.x / 32,
		 step = (uint64_t)gridDim.x * INBOUND_WARPS;

	if (threadIdx.x < 32) {
		ulonglong2 packet = hear(a.heard, a.id, 0);

		if (threadIdx.x < DEVICE_CALL_WORDS)
			words[threadIdx.x] = packet.x;
		if (threadIdx.x == 0)
			called = packet.y == DEVICE_CALL_GO(a.id);
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

struct outbound {
	const struct device_copy *copies;
	uint32_t bytes;
};

/* A block a copy. */
__global__ void __launch_bounds__(WARPS * 32)
	outbound_kernel(const __grid_constant__ struct outbound a)
{
#if __CUDA_ARCH__ >= 800
	struct device_copy copy = a.copies[blockIdx.x];

	for (uint32_t i = threadIdx.x * 2; i < a.bytes; i += WARPS * 64)
		*(uint16_t *)(copy.to + i) = *(const uint16_t *)(copy.from + i);
#endif
}

#if __CUDA_ARCH__ >= 800
/* A lane's word, known before the batch is done; address 0: it has none. */
__device__ inline ulonglong2 take_tell(const struct device_finish &a)
{
	uint32_t lane = threadIdx.x % DEVICE_TELLS;
	ulonglong2 none = make_ulonglong2(0, 0), head;

	if (a.heard && packet_load(&a.heard->packets[0]).y != DEVICE_CALL_GO(a.id))
		return none;
	head = packet_load(a.tells);
	return head.x == a.id && lane < head.y ? packet_load(&a.tells->words[lane]) : none;
}

/* What the launches before wrote to host memory is there before the id is. */
__device__ inline void finish_clock(const struct device_finish &a)
{
	uint64_t end_ns = device_now_ns();

	if (a.exchanged)
		packet_store(&a.clock->exchanged,
			     make_ulonglong2(__ldcg(&a.exchanged->ns),
					     __ldcg(&a.exchanged->given_bytes)));
	__threadfence_system();
	packet_store(&a.clock->end_ns, make_ulonglong2(end_ns, a.id));
}
#endif

/* Two warps, so that neither waits for the other's fence. */
__global__ void __launch_bounds__(2 * DEVICE_TELLS)
	finish_kernel(const __grid_constant__ struct device_finish a)
{
#if __CUDA_ARCH__ >= 800
	ulonglong2 tell = make_ulonglong2(0, 0);

	if (threadIdx.x >= DEVICE_TELLS)
		tell = take_tell(a);
	__syncthreads(); /* from the id on the words may be another batch's */
	launch_wait();
	if (threadIdx.x == 0)
		finish_clock(a);
	if (tell.x) {
		__threadfence(); /* who looks is on this device, too, and so is what it will read */
		*(volatile uint64_t *)tell.x = tell.y;
	}
#endif
}

__global__ void __launch_bounds__(WARPS * 32)
	move_kernel(const __grid_constant__ struct device_move m)
{
#if __CUDA_ARCH__ >= 800
	uint32_t chunks = m.head_dim / 8;

	for (uint32_t head = threadIdx.x / 32; head < m.n_heads; head += WARPS) {
		char *pool = m.pool + head * m.head_bytes;
		const char *from = pool + (uint64_t)m.from * DEVICE_SOURCE_BYTES;
		char *to = pool + (uint64_t)m.to * DEVICE_SOURCE_BYTES;

		for (uint32_t i = threadIdx.x % 32; i < 2 * chunks; i += 32) {
			uint32_t half = i < chunks ? 0 : 16 * m.head_dim, chunk = i % chunks;

			*(uint4 *)(to + half + chunk_offset(m.to_row, chunk)) =
				*(const uint4 *)(from + half + chunk_offset(m.from_row, chunk));
		}
	}
#endif
}

/* ---- host ----------------------------------------------------------------------------------- */

template <typename ARGUMENT>
static int launch(void (*kernel)(ARGUMENT), const ARGUMENT *argument, uint64_t n_warps,
		  uint32_t block_warps, uint32_t most_blocks, device_stream stream)
{
	uint64_t n_blocks = (n_warps + block_warps - 1) / block_warps;
	struct launch_shape shape = {(uint32_t)(n_blocks < most_blocks ? n_blocks : most_blocks),
				     block_warps * 32, 0};

	return n_warps ? launch_early(kernel, argument, shape, stream) : (int)cudaSuccess;
}

extern "C" int device_inbound(const struct device_inbound *in, device_stream stream)
{
	return launch(inbound_kernel, in, inbound_warps(*in), INBOUND_WARPS,
		      in->n_copies ? BUS_BLOCKS : UINT32_MAX, stream);
}

extern "C" int device_stand(const struct device_stand *stand, device_stream stream)
{
	struct launch_shape one = {1, 32, 0}, all = {BUS_BLOCKS, INBOUND_WARPS * 32, 0};
	int r = launch_early(stand_kernel, stand, one, stream);

	return r ? r : launch_early(called_kernel, stand, all, stream);
}

extern "C" int device_outbound(const struct device_copy *copies, uint32_t n, uint32_t bytes,
			       device_stream stream)
{
	struct outbound outbound = {copies, bytes};
	struct launch_shape shape = {n, WARPS * 32, 0};

	return n ? launch_kernel(outbound_kernel, &outbound, shape, false, stream)
		 : (int)cudaSuccess;
}

extern "C" int device_finish(const struct device_finish *finish, device_stream stream)
{
	struct launch_shape shape = {1, 2 * DEVICE_TELLS, 0};

	return launch_early(finish_kernel, finish, shape, stream);
}

extern "C" int device_move(const struct device_move *move, device_stream stream)
{
	struct launch_shape shape = {1, WARPS * 32, 0};

	return launch_kernel(move_kernel, move, shape, false, stream);
}
