/*
 * uuid.c - see uuid.h. The driver's own call is looked up by the runtime, as nothing of the driver
 * is linked.
 */
#include "uuid.h"

#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define DRIVER_VERSION 11040 /* of the first driver that has it */

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

void uuid_of_device(int device, uint8_t ret[BACKEND_DEVICE_BYTES])
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
