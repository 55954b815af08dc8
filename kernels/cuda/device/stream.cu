/*
 * stream.cu - what the card's memory gives: the time in which a bare kernel reads so many bytes in
 * scattered tiles, the best that attention which reads as much can reach.
 *
 * bulk    grid: one or two blocks on every SM. Warp 8 orders tiles into a ring, one bulk copy each;
 *         warps 0 to 7 read them there.
 * plain   code for what is before sm_90. grid: 8 blocks on every SM, each reads whole tiles by
 *         loads of 16 bytes.
 * empty   grid: a block on every SM, for the time of a graph that does nothing.
 *
 * Tile i of a launch is another of the pool by a permutation: multiplications by odd numbers and a
 * shift, as the pool has a power of two of tiles.
 */
#include "stream.h"
#include "code.h"
#include "ptx.cuh"

#include <cuda_runtime_api.h>
#include <errno.h>

#define BARRIER_BYTES 1024u
#define READERS 8u
#define BLOCK ((READERS + 1) * 32)
#define PLAIN_THREADS 256u
#define MAGIC 0x5eed5eedu
#define WARM_UPS 3u

struct reading {
	const char *pool;
	uint32_t *sink; /* written in a case that never comes, so that nothing is left out */
	uint32_t tile_bytes;
	uint32_t n_slots; /* of the ring */
	uint32_t n_tiles;
	uint32_t mask, shift; /* tiles of the pool - 1; half of their bits */
};

__device__ inline const char *tile_at(const struct reading &r, uint32_t tile)
{
	tile = tile * 0x9e3779b1u & r.mask;
	tile = (tile ^ tile >> r.shift) * 0x85ebca6bu & r.mask;
	return r.pool + (uint64_t)(tile ^ tile >> r.shift) * r.tile_bytes;
}

__device__ inline uint32_t fold(uint4 v)
{
	return v.x ^ v.y ^ v.z ^ v.w;
}

#if __CUDA_ARCH__ >= 900
/* Barriers of ring slot i: full at 16 i, empty 8 behind. */
__device__ inline void order_tiles(const struct reading &r, uint32_t ring, uint32_t barriers)
{
	uint32_t slots = r.n_slots, n = 0;

	for (uint32_t tile = blockIdx.x; tile < r.n_tiles; tile += gridDim.x, n++) {
		uint32_t slot = n % slots, full = barriers + slot * 16;

		if (n >= slots)
			barrier_wait(full + 8, n / slots - 1 & 1);
		barrier_expect(full, r.tile_bytes);
		bulk_copy(ring + slot * r.tile_bytes, tile_at(r, tile), r.tile_bytes, full);
	}
}

__device__ inline uint32_t read_tiles(const struct reading &r, const char *ring, uint32_t barriers)
{
	uint32_t slots = r.n_slots, n = 0, sum = 0;

	for (uint32_t tile = blockIdx.x; tile < r.n_tiles; tile += gridDim.x, n++) {
		uint32_t slot = n % slots, full = barriers + slot * 16;

		barrier_wait(full, n / slots & 1);
		for (uint32_t at = threadIdx.x * 16; at < r.tile_bytes; at += READERS * 512)
			sum ^= fold(*(const uint4 *)(ring + slot * r.tile_bytes + at));
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			barrier_arrive(full + 8);
	}
	return sum;
}
#endif

__global__ void __launch_bounds__(BLOCK, 2) bulk_kernel(const __grid_constant__ struct reading r)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(1024) char ring[];
	uint32_t slots = r.n_slots, barriers = shared_address(ring) + slots * r.tile_bytes;

	if (threadIdx.x == 0) {
		for (uint32_t i = 0; i < slots; i++) {
			barrier_init(barriers + i * 16, 1);
			barrier_init(barriers + i * 16 + 8, READERS);
		}
		fence_barriers();
	}
	__syncthreads();
	if (threadIdx.x == READERS * 32)
		order_tiles(r, shared_address(ring), barriers);
	else if (threadIdx.x < READERS * 32 && read_tiles(r, ring, barriers) == MAGIC)
		*r.sink = threadIdx.x;
#endif
}

__global__ void __launch_bounds__(PLAIN_THREADS)
	plain_kernel(const __grid_constant__ struct reading r)
{
	uint32_t sum = 0;

	for (uint32_t tile = blockIdx.x; tile < r.n_tiles; tile += gridDim.x) {
		for (uint32_t at = threadIdx.x * 16; at < r.tile_bytes; at += PLAIN_THREADS * 16)
			sum ^= fold(__ldcs((const uint4 *)(tile_at(r, tile) + at)));
	}
	if (sum == MAGIC)
		*r.sink = threadIdx.x;
}

__global__ void empty_kernel()
{
}

/* Data that no two rows share: memory and wires are not to have it easier than with a model's. */
__global__ void fill_kernel(uint4 *at, uint64_t n)
{
	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
	     i += (uint64_t)gridDim.x * blockDim.x) {
		uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u, y = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;

		at[i] = make_uint4((uint32_t)x, (uint32_t)(x >> 32), (uint32_t)y,
				   (uint32_t)(y >> 32));
	}
}

struct card {
	cudaStream_t stream; /* owned */
	cudaEvent_t begin, end; /* owned */
	char *pool; /* owned */
	void *flush; /* owned */
	uint64_t pool_bytes, flush_bytes;
	uint32_t n_sms;
	bool bulk;
};

static void card_done(struct card *c)
{
	cudaFree(c->pool);
	cudaFree(c->flush);
	if (c->begin)
		cudaEventDestroy(c->begin);
	if (c->end)
		cudaEventDestroy(c->end);
	if (c->stream)
		cudaStreamDestroy(c->stream);
	cudaGetLastError();
}

static int card_init(struct card *c, uint64_t pool_bytes, uint64_t flush_bytes)
{
	int device, sms, shared;

	*c = (struct card){};
	c->pool_bytes = pool_bytes;
	c->flush_bytes = flush_bytes;
	if (cudaGetDevice(&device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
		    cudaSuccess ||
	    cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaEventCreate(&c->begin) != cudaSuccess || cudaEventCreate(&c->end) != cudaSuccess)
		return -EIO;
	if (cudaMalloc((void **)&c->pool, pool_bytes + 256) != cudaSuccess ||
	    cudaMalloc(&c->flush, flush_bytes) != cudaSuccess)
		return -ENOMEM;
	c->n_sms = (uint32_t)sms;
	c->bulk = code_copies_bulk(device_code());
	fill_kernel<<<c->n_sms * 8, 256, 0, c->stream>>>((uint4 *)c->pool, pool_bytes / 16);
	if (c->bulk &&
	    cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
				 shared) != cudaSuccess)
		return -EIO;
	return cudaStreamSynchronize(c->stream) == cudaSuccess ? 0 : -EIO;
}

static uint32_t half_log2(uint64_t n)
{
	uint32_t log2 = 0;

	while (n >>= 1)
		log2++;
	return (log2 + 1) / 2;
}

static int launch(const struct card *c, const struct stream_tiles *t, uint64_t bytes)
{
	struct reading r = {};
	uint64_t pool_tiles = c->pool_bytes / t->tile_bytes;

	r.pool = c->pool;
	r.sink = (uint32_t *)(c->pool + c->pool_bytes);
	r.tile_bytes = t->tile_bytes;
	r.n_slots = t->ring_bytes / t->tile_bytes;
	r.n_tiles = (uint32_t)(bytes / t->tile_bytes);
	r.mask = (uint32_t)(pool_tiles - 1);
	r.shift = half_log2(pool_tiles);
	if (bytes == 0)
		empty_kernel<<<c->n_sms, 32, 0, c->stream>>>();
	else if (c->bulk)
		bulk_kernel<<<c->n_sms * t->blocks, BLOCK, t->ring_bytes + BARRIER_BYTES,
			      c->stream>>>(r);
	else
		plain_kernel<<<c->n_sms * 8, PLAIN_THREADS, 0, c->stream>>>(r);
	return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

static int replay(const struct card *c, cudaGraphExec_t graph, int value, float *ret_us)
{
	float ms;

	if (cudaMemsetAsync(c->flush, value, c->flush_bytes, c->stream) != cudaSuccess ||
	    cudaEventRecord(c->begin, c->stream) != cudaSuccess ||
	    cudaGraphLaunch(graph, c->stream) != cudaSuccess ||
	    cudaEventRecord(c->end, c->stream) != cudaSuccess ||
	    cudaEventSynchronize(c->end) != cudaSuccess ||
	    cudaEventElapsedTime(&ms, c->begin, c->end) != cudaSuccess)
		return -EIO;
	*ret_us = ms * 1000;
	return 0;
}

static int time_tiles(const struct card *c, const struct stream_tiles *t, uint64_t bytes,
		      uint32_t n, float *ret_us)
{
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	int r;

	if (cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
		return -EIO;
	r = launch(c, t, bytes);
	if (cudaStreamEndCapture(c->stream, &graph) != cudaSuccess || r ||
	    cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
		r = -EIO;
	for (uint32_t i = 0; i < WARM_UPS && !r; i++)
		r = replay(c, exec, (int)i, ret_us);
	for (uint32_t i = 0; i < n && !r; i++)
		r = replay(c, exec, (int)i, &ret_us[i]);
	if (exec)
		cudaGraphExecDestroy(exec);
	if (graph)
		cudaGraphDestroy(graph);
	return r;
}

static bool power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

extern "C" int stream_read(const struct stream_tiles *t, uint64_t flush_bytes, uint64_t bytes,
			   uint32_t n, float *ret_us)
{
	struct card c;
	int r;

	if (!power_of_two(t->pool_bytes) || !power_of_two(t->tile_bytes) || t->tile_bytes < 4096 ||
	    t->ring_bytes < t->tile_bytes || t->ring_bytes > t->tile_bytes * (BARRIER_BYTES / 16) ||
	    bytes > t->pool_bytes)
		return -EINVAL;
	r = card_init(&c, t->pool_bytes, flush_bytes);
	if (!r)
		r = time_tiles(&c, t, bytes, n, ret_us);
	card_done(&c);
	return r;
}
