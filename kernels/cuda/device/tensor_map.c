/* tensor_map.c - the runtime finds the function: nothing is linked with the driver. */
#include "tensor_map.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <string.h>

#define DRIVER_VERSION 12000 /* of the first driver that has tensor maps */

tensor_map_encode tensor_map_encoder(void)
{
	static _Atomic(void *) found; /* of the process */
	enum cudaDriverEntryPointQueryResult result;
	void *at = atomic_load(&found);
	tensor_map_encode encode;

	if (!at && (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, DRIVER_VERSION,
						     cudaEnableDefault, &result) != cudaSuccess ||
		    result != cudaDriverEntryPointSuccess))
		at = NULL;
	atomic_store(&found, at);
	memcpy(&encode, &at, sizeof(encode));
	return encode;
}
