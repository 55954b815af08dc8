/*
 * pool.c - the pool's addresses, and the memory behind some of them; see pool.h.
 *
 * Addresses are reserved once, so that a source in a schedule stays true whatever is committed.
 * mapped[] says which extents have memory. A commit that fails half-way undoes what it has done,
 * in the other order.
 */
#include "pool.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>

#define DRIVER_VERSION 11020 /* of the first driver that has all of them */

struct pool_driver {
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*unreserve)(CUdeviceptr, size_t);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*destroy)(CUmemGenericAllocationHandle);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			unsigned long long);
	CUresult (*unmap)(CUdeviceptr, size_t);
	CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

static bool find(const char *name, void *ret)
{
	enum cudaDriverEntryPointQueryResult found;
	void *at = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &at, DRIVER_VERSION, cudaEnableDefault,
					     &found) != cudaSuccess ||
	    found != cudaDriverEntryPointSuccess || !at)
		return false;
	*(void **)ret = at;
	return true;
}

static bool find_all(struct pool_driver *d)
{
	return find("cuMemAddressReserve", &d->reserve) &&
	       find("cuMemAddressFree", &d->unreserve) && find("cuMemCreate", &d->create) &&
	       find("cuMemRelease", &d->destroy) && find("cuMemMap", &d->map) &&
	       find("cuMemUnmap", &d->unmap) && find("cuMemSetAccess", &d->set_access);
}

int pool_init(struct pool *pool, int device, uint64_t pool_bytes, uint64_t extent_bytes)
{
	CUdeviceptr base = 0;

	*pool = (struct pool){.device = device, .bytes = pool_bytes, .extent_bytes = extent_bytes};
	pool->n_extents = (uint32_t)(pool_bytes / extent_bytes);
	pool->driver = calloc(1, sizeof(*pool->driver));
	pool->handles = calloc(pool->n_extents, sizeof(*pool->handles));
	pool->mapped = calloc(pool->n_extents, sizeof(*pool->mapped));
	if (!pool->driver || !pool->handles || !pool->mapped)
		return -ENOMEM;
	if (!find_all(pool->driver))
		return -EIO;
	if (pool->driver->reserve(&base, pool_bytes, 0, 0, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	pool->base = base;
	return 0;
}

void pool_done(struct pool *pool)
{
	for (uint32_t i = 0; pool->mapped && i < pool->n_extents; i++)
		pool_release(pool, i);
	if (pool->base)
		pool->driver->unreserve(pool->base, pool->bytes);
	free(pool->driver);
	free(pool->handles);
	free(pool->mapped);
	*pool = (struct pool){0};
}

static CUresult map_extent(const struct pool *pool, CUdeviceptr at,
			   CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
					       .id = pool->device},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult r = pool->driver->map(at, pool->extent_bytes, 0, handle, 0);

	if (r != CUDA_SUCCESS)
		return r;
	r = pool->driver->set_access(at, pool->extent_bytes, &access, 1);
	if (r != CUDA_SUCCESS)
		pool->driver->unmap(at, pool->extent_bytes);
	return r;
}

int pool_commit(struct pool *pool, uint32_t extent, struct CUstream_st *stream)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
						 .id = pool->device}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = pool->base + extent * pool->extent_bytes;

	if (extent >= pool->n_extents || pool->mapped[extent])
		return -EINVAL;
	if (pool->driver->create(&handle, pool->extent_bytes, &prop, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	if (map_extent(pool, at, handle) != CUDA_SUCCESS) {
		pool->driver->destroy(handle);
		return -ENOMEM;
	}
	pool->handles[extent] = handle;
	pool->mapped[extent] = true;
	if (cudaMemsetAsync((void *)(uintptr_t)at, 0, pool->extent_bytes, stream) == cudaSuccess)
		return 0;
	pool_release(pool, extent);
	return -ENOMEM;
}

void pool_release(struct pool *pool, uint32_t extent)
{
	if (extent >= pool->n_extents || !pool->mapped[extent])
		return;
	pool->driver->unmap(pool->base + extent * pool->extent_bytes, pool->extent_bytes);
	pool->driver->destroy(pool->handles[extent]);
	pool->mapped[extent] = false;
}
