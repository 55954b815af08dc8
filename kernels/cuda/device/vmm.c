/*
 * vmm.c - see vmm.h. Memory goes with the last of its mappings and descriptors, in whatever process
 * these are: of its handle nothing is kept here.
 */
#include "vmm.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define DRIVER_VERSION 11020 /* of the first driver that has all of them */

struct vmm_driver {
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*unreserve)(CUdeviceptr, size_t);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long);
	CUresult (*release)(CUmemGenericAllocationHandle);
	CUresult (*share)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
			  unsigned long long);
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

static bool find_all(struct vmm_driver *d)
{
	return find("cuMemAddressReserve", &d->reserve) &&
	       find("cuMemAddressFree", &d->unreserve) && find("cuMemCreate", &d->create) &&
	       find("cuMemRelease", &d->release) &&
	       find("cuMemExportToShareableHandle", &d->share) && find("cuMemMap", &d->map) &&
	       find("cuMemUnmap", &d->unmap) && find("cuMemSetAccess", &d->set_access);
}

int vmm_init(struct vmm *vmm, int device)
{
	*vmm = (struct vmm){.driver = calloc(1, sizeof(*vmm->driver)), .device = device};
	if (!vmm->driver)
		return -ENOMEM;
	return find_all(vmm->driver) ? 0 : -EIO;
}

void vmm_done(struct vmm *vmm)
{
	free(vmm->driver);
	*vmm = (struct vmm){0};
}

int vmm_reserve(const struct vmm *vmm, uint64_t bytes, uint64_t *ret_at)
{
	CUdeviceptr at = 0;

	if (vmm->driver->reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	*ret_at = at;
	return 0;
}

void vmm_unreserve(const struct vmm *vmm, uint64_t at, uint64_t bytes)
{
	vmm->driver->unreserve(at, bytes);
}

int vmm_let(const struct vmm *vmm, uint64_t at, uint64_t bytes, int device)
{
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return vmm->driver->set_access(at, bytes, &access, 1) == CUDA_SUCCESS ? 0 : -EIO;
}

static int map(const struct vmm *vmm, uint64_t at, uint64_t bytes,
	       CUmemGenericAllocationHandle handle)
{
	if (vmm->driver->map(at, bytes, 0, handle, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	if (vmm_let(vmm, at, bytes, vmm->device) == 0)
		return 0;
	vmm->driver->unmap(at, bytes);
	return -ENOMEM;
}

/* ret_fd: NULL: nobody else may map it. */
static int fill(const struct vmm *vmm, uint64_t at, uint64_t bytes, int *ret_fd)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
						 .id = vmm->device}};
	const CUmemAllocationHandleType kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmemGenericAllocationHandle handle;
	int fd = -1, r = 0;

	if (ret_fd)
		prop.requestedHandleTypes = kind;
	if (vmm->driver->create(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
		return -ENOMEM;
	/* no driver promises that programs which are started do not have it, too */
	if (ret_fd && (vmm->driver->share(&fd, handle, kind, 0) != CUDA_SUCCESS ||
		       fcntl(fd, F_SETFD, FD_CLOEXEC) < 0))
		r = -EIO;
	if (r == 0)
		r = map(vmm, at, bytes, handle);
	vmm->driver->release(handle);
	if (r == 0 && ret_fd)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return r;
}

int vmm_fill(const struct vmm *vmm, uint64_t at, uint64_t bytes)
{
	return fill(vmm, at, bytes, NULL);
}

int vmm_fill_shared(const struct vmm *vmm, uint64_t at, uint64_t bytes, int *ret_fd)
{
	return fill(vmm, at, bytes, ret_fd);
}

void vmm_empty(const struct vmm *vmm, uint64_t at, uint64_t bytes)
{
	vmm->driver->unmap(at, bytes);
}
