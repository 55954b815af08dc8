/*
 * launch.cuh - launches that may begin before the one before them on the stream has ended; their
 * kernels wait for it where they must (launch_wait), which code for sm_90 alone can. Elsewhere each
 * begins when the one before is complete.
 */
#ifndef COPPICE_CUDA_LAUNCH_CUH
#define COPPICE_CUDA_LAUNCH_CUH

#include "code.h"
#include "launch.h"

#include <cuda_runtime_api.h>

struct launch_shape {
	uint32_t n_blocks, block_threads, shared_bytes;
};

/* early: what comes before need not have ended. A cudaError_t. */
template <typename ARGUMENT>
MUST_CHECK static int launch_kernel(void (*kernel)(ARGUMENT), const ARGUMENT *argument,
				    struct launch_shape shape, bool early, struct launch_to to)
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
	return launch_put(&l, to);
}

template <typename ARGUMENT>
MUST_CHECK static int launch_early(void (*kernel)(ARGUMENT), const ARGUMENT *argument,
				   struct launch_shape shape, struct launch_to to)
{
	return launch_kernel(kernel, argument, shape, code_overlaps(device_code()), to);
}

/*
 * Loads kernels on the current device. One that is not loaded is where it is first launched, which
 * waits for all that runs on the device: without end if that waits for another member of a group,
 * and the launch is that member's. A cudaError_t.
 */
template <typename... KERNEL> MUST_CHECK static int load_kernels(KERNEL *...kernels)
{
	const void *const all[] = {(const void *)kernels...};
	cudaFuncAttributes attributes;
	int r = cudaSuccess;

	for (const void *kernel : all)
		if (r == cudaSuccess)
			r = cudaFuncGetAttributes(&attributes, kernel);
	return r;
}

#endif
