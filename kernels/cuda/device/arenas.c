/*
 * arenas.c - device memory that clients open, each block an allocation of its own; see arenas.h.
 *
 * The driver may give out the handle of a block that was freed once more, for another. A client
 * that still has the old one open would then see the new block. So hashes of handles are
 * remembered; a block whose handle is known is held back until another was found, and freed then. A
 * hash that two handles share costs a block held back in vain, no more.
 */
#include "arenas.h"

#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_VERSION 11040 /* of the first driver that has all of them */
#define TRIES 16u /* blocks held back while a new handle is looked for */

static_assert(sizeof(cudaIpcMemHandle_t) == BACKEND_HANDLE_BYTES, "as the seam has it");
static_assert(sizeof(CUuuid) == BACKEND_DEVICE_BYTES, "as the seam has it");

static void *entry_point(const char *name)
{
	enum cudaDriverEntryPointQueryResult found;
	void *at = NULL;

	if (cudaGetDriverEntryPointByVersion(name, &at, DRIVER_VERSION, cudaEnableDefault,
					     &found) != cudaSuccess ||
	    found != cudaDriverEntryPointSuccess)
		return NULL;
	return at;
}

int arenas_init(struct arenas *arenas, int device)
{
	*arenas = (struct arenas){.device = device,
				  .known = calloc(ARENAS_KNOWN, sizeof(*arenas->known))};
	return arenas->known ? 0 : -ENOMEM;
}

void arenas_done(struct arenas *arenas)
{
	free(arenas->known);
	*arenas = (struct arenas){0};
}

static uint64_t hash_of(const cudaIpcMemHandle_t *handle)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < sizeof(*handle); i++)
		hash = (hash ^ (uint8_t)handle->reserved[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static bool is_known(const struct arenas *arenas, uint64_t hash)
{
	uint64_t n = arenas->n_known < ARENAS_KNOWN ? arenas->n_known : ARENAS_KNOWN;

	for (uint64_t i = 0; i < n; i++) {
		if (arenas->known[i] == hash)
			return true;
	}
	return false;
}

/* The driver holds nothing behind the address but the block. */
static bool is_whole(const void *at, uint64_t bytes)
{
	CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr) =
		(CUresult(*)(CUdeviceptr *, size_t *, CUdeviceptr))entry_point(
			"cuMemGetAddressRange");
	CUdeviceptr base = 0;
	size_t size = 0;

	return range && range(&base, &size, (uintptr_t)at) == CUDA_SUCCESS &&
	       base == (uintptr_t)at && size == bytes;
}

static int take_block(uint64_t bytes, void **ret_at, cudaIpcMemHandle_t *ret_handle)
{
	if (cudaMalloc(ret_at, bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	if (is_whole(*ret_at, bytes) && cudaIpcGetMemHandle(ret_handle, *ret_at) == cudaSuccess)
		return 0;
	cudaGetLastError();
	cudaFree(*ret_at);
	return -EIO;
}

/* A block under a handle that nobody has had. */
static int find_block(struct arenas *arenas, uint64_t bytes, void **ret_at,
		      cudaIpcMemHandle_t *handle)
{
	void *held[TRIES];
	uint32_t n = 0;
	int r = take_block(bytes, &held[0], handle);

	while (r == 0 && is_known(arenas, hash_of(handle))) {
		n++;
		r = n < TRIES ? take_block(bytes, &held[n], handle) : -ENOMEM;
	}
	if (r == 0)
		*ret_at = held[n];
	for (uint32_t i = 0; i < n; i++)
		cudaFree(held[i]);
	return r;
}

static void describe_device(const struct arenas *arenas, struct backend_arena *arena)
{
	CUresult (*uuid_of)(CUuuid *, CUdevice) =
		(CUresult(*)(CUuuid *, CUdevice))entry_point("cuDeviceGetUuid");
	struct cudaDeviceProp prop;
	CUuuid uuid = {{0}};
	int mps = 0;

	/* The driver's own, which is also a part's where the device is parted. */
	if (!uuid_of || uuid_of(&uuid, arenas->device) != CUDA_SUCCESS) {
		if (cudaGetDeviceProperties(&prop, arenas->device) == cudaSuccess)
			uuid = prop.uuid;
	}
	memcpy(arena->device, &uuid, sizeof(arena->device));
	arena->time_sliced = cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, arenas->device) ==
				     cudaSuccess &&
			     mps == 0;
	cudaGetLastError();
}

int arenas_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream,
	       struct backend_arena *ret)
{
	static const uint8_t any[BACKEND_DEVICE_BYTES];
	struct backend_arena arena = {0};
	cudaIpcMemHandle_t handle;
	void *at = NULL;
	int r;

	describe_device(arenas, &arena);
	if (memcmp(ret->device, any, sizeof(any)) != 0 &&
	    memcmp(ret->device, arena.device, sizeof(any)) != 0)
		return -ENODEV;
	r = find_block(arenas, bytes, &at, &handle);
	if (r)
		return r;
	if (cudaMemsetAsync(at, 0, bytes, stream) != cudaSuccess ||
	    cudaStreamSynchronize(stream) != cudaSuccess) {
		cudaFree(at);
		return -EIO;
	}
	arenas->known[arenas->n_known++ % ARENAS_KNOWN] = hash_of(&handle);
	arena.base = (uintptr_t)at;
	memcpy(arena.handle, &handle, sizeof(handle));
	*ret = arena;
	return 0;
}

void arenas_free(uint64_t base, struct CUstream_st *stream)
{
	cudaStreamSynchronize(stream);
	cudaFree((void *)(uintptr_t)base);
}
