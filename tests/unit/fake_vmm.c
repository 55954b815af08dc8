/*
 * fake_vmm.c - the driver's part of the device that fake_device.c plays: memory by addresses, and
 * what others would map it by, which here nobody does, and which is not close-on-exec, as no driver
 * promises that.
 */
#include "fake_device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>
#include <sys/eventfd.h>

bool fake_device_shares = true;
uint64_t fake_device_bytes;
uint32_t fake_device_lets[FAKE_DEVICES];

/* Memory is there with its addresses, and no other process maps it. */
static CUresult address_reserve(CUdeviceptr *ret, size_t bytes, size_t align, CUdeviceptr near,
				unsigned long long flags)
{
	void *at;

	(void)align, (void)near, (void)flags;
	if (cudaMalloc(&at, bytes) != cudaSuccess)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret = (uintptr_t)at;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr at, size_t bytes)
{
	(void)bytes;
	cudaFree((void *)(uintptr_t)at);
	return CUDA_SUCCESS;
}

static CUresult memory_share(void *ret, CUmemGenericAllocationHandle memory,
			     CUmemAllocationHandleType type, unsigned long long flags)
{
	(void)memory, (void)type, (void)flags;
	if (!fake_device_shares)
		return CUDA_ERROR_NOT_SUPPORTED;
	*(int *)ret = eventfd(0, 0);
	return *(int *)ret < 0 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr at, size_t bytes, size_t offset,
			   CUmemGenericAllocationHandle memory, unsigned long long flags)
{
	(void)at, (void)offset, (void)memory, (void)flags;
	fake_device_bytes += bytes;
	return CUDA_SUCCESS;
}

static CUresult memory_unmap(CUdeviceptr at, size_t bytes)
{
	(void)at;
	fake_device_bytes -= bytes;
	return CUDA_SUCCESS;
}

static CUresult memory_let(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	(void)at, (void)bytes;
	for (size_t i = 0; i < n; i++) {
		if (access[i].location.id < 0 || access[i].location.id >= FAKE_DEVICES)
			return CUDA_ERROR_INVALID_DEVICE;
		fake_device_lets[access[i].location.id]++;
	}
	return CUDA_SUCCESS;
}

static CUresult nothing_to_do(void)
{
	return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **ret, unsigned version,
					     unsigned long long flags,
					     enum cudaDriverEntryPointQueryResult *found)
{
	(void)version, (void)flags;
	*found = cudaDriverEntryPointSuccess;
	if (!strcmp(name, "cuMemAddressReserve"))
		*ret = (void *)(uintptr_t)address_reserve;
	else if (!strcmp(name, "cuMemAddressFree"))
		*ret = (void *)(uintptr_t)address_free;
	else if (!strcmp(name, "cuMemExportToShareableHandle"))
		*ret = (void *)(uintptr_t)memory_share;
	else if (!strcmp(name, "cuMemMap"))
		*ret = (void *)(uintptr_t)memory_map;
	else if (!strcmp(name, "cuMemUnmap"))
		*ret = (void *)(uintptr_t)memory_unmap;
	else if (!strcmp(name, "cuMemSetAccess"))
		*ret = (void *)(uintptr_t)memory_let;
	else
		*ret = (void *)(uintptr_t)nothing_to_do;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int device)
{
	(void)device;
	*ret = (struct cudaDeviceProp){0};
	return cudaSuccess;
}
