/* fake_memory.c - see fake_memory.h. */
#include "fake_memory.h"

#include "kernels/cuda/device/bring.h"
#include "kernels/cuda/device/launch.h"

#include <cuda_runtime_api.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct fake_memory device;

cudaError_t cudaMalloc(void **ret, size_t bytes)
{
	for (uint32_t i = 0; i < BLOCKS_MAX && !device.full; i++) {
		if (device.blocks[i].at)
			continue;
		assert_non_null(*ret = malloc(1)); /* an address; nobody writes there */
		device.blocks[i] = (struct block){*ret, bytes, false};
		device.bytes += bytes;
		if (device.bytes > device.peak_bytes)
			device.peak_bytes = device.bytes;
		return cudaSuccess;
	}
	return cudaErrorMemoryAllocation;
}

struct block *block_at(const void *at)
{
	for (uint32_t i = 0; i < BLOCKS_MAX; i++) {
		if (device.blocks[i].at == at)
			return &device.blocks[i];
	}
	fail_msg("%p is no memory of the device", at);
	return NULL;
}

cudaError_t cudaFree(void *at)
{
	struct block *block;

	if (!at)
		return cudaSuccess;
	block = block_at(at);
	assert_false(block->read);
	device.bytes -= block->bytes;
	free(at);
	*block = (struct block){0};
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	for (uint32_t i = 0; i < BLOCKS_MAX; i++)
		device.blocks[i].read = false;
	device.n_waits++;
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ret, size_t bytes)
{
	assert_non_null(*ret = malloc(bytes));
	return cudaSuccess;
}

cudaError_t cudaFreeHost(void *at)
{
	free(at);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags)
{
	(void)flags;
	*ret = NULL;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

/* Nothing here is brought or launched. */
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
