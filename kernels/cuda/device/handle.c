/*
 * handle.c - see handle.h. The driver's own calls are looked up by the runtime, as nothing of the
 * driver is linked.
 */
#include "handle.h"

#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <string.h>

#define DRIVER_VERSION 11040 /* of the first driver that has all of them */

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

int handle_make(const void *at, uint64_t bytes, uint8_t ret[BACKEND_HANDLE_BYTES])
{
	cudaIpcMemHandle_t handle;

	if (!is_whole(at, bytes) || cudaIpcGetMemHandle(&handle, (void *)at) != cudaSuccess) {
		cudaGetLastError();
		return -EIO;
	}
	memcpy(ret, &handle, sizeof(handle));
	return 0;
}

void handle_device(int device, uint8_t ret[BACKEND_DEVICE_BYTES])
{
	CUresult (*uuid_of)(CUuuid *, CUdevice) =
		(CUresult(*)(CUuuid *, CUdevice))entry_point("cuDeviceGetUuid");
	struct cudaDeviceProp prop;
	CUuuid uuid = {{0}};

	if ((!uuid_of || uuid_of(&uuid, device) != CUDA_SUCCESS) &&
	    cudaGetDeviceProperties(&prop, device) == cudaSuccess)
		uuid = prop.uuid;
	cudaGetLastError();
	memcpy(ret, &uuid, sizeof(uuid));
}
