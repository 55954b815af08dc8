/*
 * pool.c - the pool's addresses, and the memory behind some of them; see pool.h.
 *
 * Addresses are reserved once, so that a source in a schedule stays true whatever is committed.
 * mapped[] says which extents have memory.
 */
#include "pool.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>

int pool_init(struct pool *pool, int device, uint64_t pool_bytes, uint64_t extent_bytes)
{
	int r;

	*pool = (struct pool){.bytes = pool_bytes, .extent_bytes = extent_bytes};
	pool->n_extents = (uint32_t)(pool_bytes / extent_bytes);
	pool->mapped = calloc(pool->n_extents, sizeof(*pool->mapped));
	if (!pool->mapped)
		return -ENOMEM;
	r = vmm_init(&pool->vmm, device);
	return r ? r : vmm_reserve(&pool->vmm, pool_bytes, &pool->base);
}

void pool_done(struct pool *pool)
{
	for (uint32_t i = 0; pool->mapped && i < pool->n_extents; i++)
		pool_release(pool, i);
	if (pool->base)
		vmm_unreserve(&pool->vmm, pool->base, pool->bytes);
	vmm_done(&pool->vmm);
	if (pool->beside)
		cudaStreamDestroy(pool->beside);
	free(pool->mapped);
	*pool = (struct pool){0};
}

int pool_clear(const struct pool *pool, uint32_t extent, struct CUstream_st *stream)
{
	void *at = (void *)(uintptr_t)(pool->base + extent * pool->extent_bytes);

	return cudaMemsetAsync(at, 0, pool->extent_bytes, stream) == cudaSuccess ? 0 : -EIO;
}

int pool_commit(struct pool *pool, uint32_t extent, struct CUstream_st *stream)
{
	uint64_t at = pool->base + extent * pool->extent_bytes;

	if (extent >= pool->n_extents || pool->mapped[extent])
		return -EINVAL;
	if (vmm_fill(&pool->vmm, at, pool->extent_bytes) < 0)
		return -ENOMEM;
	pool->mapped[extent] = true;
	if (pool_clear(pool, extent, stream) == 0)
		return 0;
	pool_release(pool, extent);
	return -ENOMEM;
}

/* What it does goes before blocks that have not begun: somebody may wait for it. */
static int open_stream_beside(struct pool *pool)
{
	int least, greatest;

	if (pool->beside)
		return 0;
	if (cudaDeviceGetStreamPriorityRange(&least, &greatest) == cudaSuccess &&
	    cudaStreamCreateWithPriority(&pool->beside, cudaStreamNonBlocking, greatest) ==
		    cudaSuccess)
		return 0;
	return -ENOMEM;
}

int pool_prepare(struct pool *pool, uint32_t extent)
{
	int r = open_stream_beside(pool);

	if (r == 0)
		r = pool_commit(pool, extent, pool->beside);
	if (r < 0 || cudaStreamSynchronize(pool->beside) == cudaSuccess)
		return r;
	pool_release(pool, extent);
	return -ENOMEM;
}

void pool_release(struct pool *pool, uint32_t extent)
{
	if (extent >= pool->n_extents || !pool->mapped[extent])
		return;
	vmm_empty(&pool->vmm, pool->base + extent * pool->extent_bytes, pool->extent_bytes);
	pool->mapped[extent] = false;
}
