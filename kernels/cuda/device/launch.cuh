/*
 * launch.cuh - launches that may begin before the one before them on the stream has ended; their
 * kernels wait for it where they must (launch_wait), which code for sm_90 alone can. Elsewhere each
 * begins when the one before is complete.
 */
#ifndef COPPICE_CUDA_LAUNCH_CUH
#define COPPICE_CUDA_LAUNCH_CUH

#include "device.h"
#include "launch.h"

#include <cuda_runtime_api.h>

struct launch_shape {
	uint32_t n_blocks, block_threads, shared_bytes;
};

/* Whether the driver has loaded the code for sm_90a of a kernel that is carried for both: on such a
 * device, too, it has not where it was told to make all code anew. Asked once, as it is the same
 * for all kernels and for a process's devices; their threads may ask at once. */
static inline cudaError_t launch_find_code(const void *kernel, bool *ret_hopper)
{
	enum { UNKNOWN, NO, YES };
	static int known;
	int is = __atomic_load_n(&known, __ATOMIC_RELAXED);
	cudaFuncAttributes attributes;
	cudaError_t r = is == UNKNOWN ? cudaFuncGetAttributes(&attributes, kernel) : cudaSuccess;

	if (r != cudaSuccess)
		return r;
	if (is == UNKNOWN) {
		is = attributes.ptxVersion >= 90 ? YES : NO;
		__atomic_store_n(&known, is, __ATOMIC_RELAXED);
	}
	*ret_hopper = is == YES;
	return r;
}

/* early: what comes before need not have ended. A cudaError_t. */
template <typename ARGUMENT>
static int launch_kernel(void (*kernel)(ARGUMENT), const ARGUMENT *argument,
			 struct launch_shape shape, bool early, cudaStream_t stream)
{
	struct launch l = {};

	static_assert(sizeof(ARGUMENT) <= LAUNCH_ARGUMENT_BYTES, "room for it in a chain");
	l.kernel = (const void *)kernel;
	l.n_blocks = shape.n_blocks;
	l.block_threads = shape.block_threads;
	l.shared_bytes = shape.shared_bytes;
	l.early = early;
	l.argument = argument;
	l.argument_bytes = sizeof(*argument);
	return launch_put(&l, stream);
}

template <typename ARGUMENT>
static int launch_early(void (*kernel)(ARGUMENT), const ARGUMENT *argument,
			struct launch_shape shape, cudaStream_t stream)
{
	return launch_kernel(kernel, argument, shape, device_is_hopper(), stream);
}

#endif
