/* no_launches.c - where a plan is made and nothing is brought or launched. */
#include "kernels/cuda/device/bring.h"
#include "kernels/cuda/device/launch.h"

#include <cuda_runtime_api.h>

int device_bring(const struct device_bring *copy, device_stream stream)
{
	(void)copy;
	(void)stream;
	return cudaErrorUnknown;
}

void launch_chain_begin(struct launch_chain *chain)
{
	(void)chain;
}

int launch_chain_go(struct launch_chain *chain, struct CUstream_st *stream)
{
	(void)chain;
	(void)stream;
	return cudaErrorUnknown;
}
