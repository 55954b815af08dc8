/*
 * fake_runtime.c - the CUDA runtime of the played device, whose memory is the machine's. What is
 * given is filled with NaN, so that what nobody wrote shows.
 */
#include "fake_device.h"

#include "proto/arith.h"
#include "kernels/program/program.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES (2u << 20) /* memory comes so faster, where there is much of it */
#define FAKE_BYTES_MAX (UINT64_C(1) << 40) /* the device has no more */

int fake_n_pinned;

cudaError_t cudaMalloc(void **at, size_t bytes)
{
	size_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : PROGRAM_ALIGN;

	*at = NULL;
	if (bytes <= FAKE_BYTES_MAX)
		*at = aligned_alloc(align, align_to(bytes, align));
	if (*at && align == HUGE_BYTES)
		(void)madvise(*at, align_to(bytes, align), MADV_HUGEPAGE);
	if (*at)
		memset(*at, 0xff, bytes);
	return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *at)
{
	free(at);
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **at, size_t bytes)
{
	cudaError_t r = cudaMalloc(at, bytes);

	fake_n_pinned += r == cudaSuccess;
	return r;
}

cudaError_t cudaFreeHost(void *at)
{
	fake_n_pinned -= at != NULL;
	return cudaFree(at);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	(void)kind;
	memcpy(to, from, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	(void)stream;
	return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemset(void *at, int value, size_t bytes)
{
	memset(at, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
	(void)stream;
	memset(at, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	(void)device;
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	(void)flags;
	*stream = NULL;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	(void)flags;
	*event = NULL;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	(void)event;
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	(void)event;
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	return cudaSuccess;
}
