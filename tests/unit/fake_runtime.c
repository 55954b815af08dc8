/*
 * fake_runtime.c - the CUDA runtime of the played device, whose memory is the machine's. What is
 * given is filled with NaN, so that what nobody wrote shows.
 */
#include "fake_device.h"

#include "proto/arith.h"
#include "kernels/program/program.h"

#include <cuda_runtime_api.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define NAN_BYTES (2u << 20)
#define PAGE_BYTES 4096u
#define FAKE_BYTES_MAX (UINT64_C(1) << 40) /* the device has no more */

int fake_n_pinned;

/* A file of NaN. */
static int nan_file(void)
{
	static int fd = -1;
	void *at;

	if (fd >= 0)
		return fd;
	fd = memfd_create("nan", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, NAN_BYTES), 0);
	at = mmap(NULL, NAN_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	memset(at, 0xff, NAN_BYTES);
	munmap(at, NAN_BYTES);
	return fd;
}

/* Whole pages become those of the file, or, where there is none, of zeros: each is memory of its
 * own with the first write to it. What nobody touches takes no time. */
static void put_pages(char *at, size_t bytes, int fd)
{
	const int flags = MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);

	for (size_t i = 0, n; i < bytes; i += n) {
		n = fd >= 0 && bytes - i > NAN_BYTES ? NAN_BYTES : bytes - i;
		assert_ptr_equal(mmap(at + i, n, PROT_READ | PROT_WRITE, flags, fd, 0), at + i);
	}
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
	size_t align = bytes >= NAN_BYTES ? NAN_BYTES : PROGRAM_ALIGN;

	*at = NULL;
	if (bytes <= FAKE_BYTES_MAX)
		*at = aligned_alloc(align, align_to(bytes, align));
	if (*at && align == NAN_BYTES)
		put_pages(*at, align_to(bytes, align), nan_file());
	else if (*at)
		memset(*at, 0xff, bytes);
	return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *at)
{
	size_t bytes = malloc_usable_size(at);

	if (bytes >= NAN_BYTES)
		put_pages(at, bytes - bytes % PAGE_BYTES, -1);
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

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = *greatest = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	(void)priority;
	return cudaStreamCreateWithFlags(stream, flags);
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
