/* code.cu - which code the driver has loaded: that of a kernel which does nothing, and is carried
 * like all others. */
#include "code.h"

#include <cuda_runtime_api.h>

__global__ void code_kernel()
{
}

/* Threads of several devices may ask at once. */
extern "C" int device_find_code(enum code *ret)
{
	enum { UNKNOWN, PORTABLE, HOPPER };
	static int known;
	int is = __atomic_load_n(&known, __ATOMIC_RELAXED);
	cudaFuncAttributes attributes;
	cudaError_t r = cudaSuccess;

	if (is == UNKNOWN)
		r = cudaFuncGetAttributes(&attributes, (const void *)code_kernel);
	if (r != cudaSuccess)
		return r;
	if (is == UNKNOWN) {
		is = attributes.ptxVersion >= 90 ? HOPPER : PORTABLE;
		__atomic_store_n(&known, is, __ATOMIC_RELAXED);
	}
	*ret = is == HOPPER ? CODE_WGMMA : CODE_MMA;
	return r;
}
