/*
 * launch.cuh - launches that may begin before the one before them on the stream has ended; their kernels wait for it
 * where they must (launch_wait), which sm_90 alone can. On other devices each begins when the one before is complete.
 */
#ifndef COPPICE_CUDA_LAUNCH_CUH
#define COPPICE_CUDA_LAUNCH_CUH

#include "launch.h"

#include <cuda_runtime_api.h>

struct launch_shape {
	uint32_t n_blocks, block_threads, shared_bytes;
};

/* The current device is sm_90: others run kernels in which launch_wait is nothing. Devices' threads may ask at once. */
static inline bool launches_overlap()
{
	static int known; /* of the device, which is one for all of a process */
	int major = __atomic_load_n(&known, __ATOMIC_RELAXED), device;

	if (major == 0 && cudaGetDevice(&device) == cudaSuccess &&
	    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
		    cudaSuccess)
		__atomic_store_n(&known, major, __ATOMIC_RELAXED);
	return major == 9;
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
	return launch_kernel(kernel, argument, shape, launches_overlap(), stream);
}

#endif
