/* batch_memory.c - buffers that grow, and errors that are remembered. See batch_impl.h. */
#include "batch_impl.h"

#include "kernels/clock.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <sched.h>

int batch_expect(struct batch *b, int r)
{
	if (r == cudaSuccess)
		return 0;
	if (b->error == cudaSuccess)
		b->error = r;
	return -EIO;
}

bool batch_settles(const struct batch *b, uint64_t limit_ns)
{
	uint64_t deadline_ns = clock_ns() + limit_ns;
	cudaError_t r;

	while ((r = cudaStreamQuery(b->stream)) == cudaErrorNotReady && clock_ns() < deadline_ns)
		sched_yield();
	cudaGetLastError();
	return r != cudaErrorNotReady;
}

int batch_await(struct batch *b)
{
	if (b->patience_ns && (b->stuck || !batch_settles(b, b->patience_ns))) {
		b->failed = b->stuck = true;
		return batch_expect(b, cudaErrorTimeout);
	}
	return batch_expect(b, cudaStreamSynchronize(b->stream));
}

int batch_grow(struct batch *b, struct batch_buffer *buffer, size_t bytes, bool host)
{
	void *at = NULL;

	if (bytes <= buffer->bytes)
		return 0;
	bytes = host ? bytes + bytes / 2 : device_room(bytes);
	if (batch_await(b) != 0)
		return -EIO;
	if ((host ? cudaMallocHost(&at, bytes) : cudaMalloc(&at, bytes)) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	if (host)
		cudaFreeHost(buffer->at);
	else
		cudaFree(buffer->at);
	*buffer = (struct batch_buffer){at, bytes};
	return 0;
}
