/*
 * launch.cuh - launches that may begin before the one before them on the stream has ended; their kernels wait for it
 * where they must (launch_wait), which sm_90 alone can. On other devices each begins when the one before is complete.
 */
#ifndef COPPICE_CUDA_LAUNCH_CUH
#define COPPICE_CUDA_LAUNCH_CUH

#include <cuda_runtime_api.h>

struct launch_shape {
	uint32_t n_blocks, block_threads, shared_bytes;
};

/* The current device is sm_90: others run kernels in which launch_wait is nothing. */
static inline bool launches_overlap()
{
	static int major; /* of the device, which is one for all of a process */
	int device = 0;

	if (major == 0 && cudaGetDevice(&device) == cudaSuccess &&
	    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
		major = 0;
	return major == 9;
}

/* Says how its own launch went: cudaGetLastError would say what somebody asked before. */
template <typename ARGUMENT>
static int launch_early(void (*kernel)(ARGUMENT), const ARGUMENT *argument, struct launch_shape shape,
			cudaStream_t stream)
{
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3(shape.n_blocks);
	config.blockDim = dim3(shape.block_threads);
	config.dynamicSmemBytes = shape.shared_bytes;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = launches_overlap() ? 1 : 0;
	return cudaLaunchKernelEx(&config, kernel, *argument);
}

#endif
