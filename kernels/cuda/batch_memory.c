/* batch_memory.c - buffers that grow, and errors that are remembered. See batch_impl.h. */
#include "batch_impl.h"

#include <cuda_runtime_api.h>
#include <errno.h>

int batch_expect(struct batch *b, int r)
{
	if (r == cudaSuccess)
		return 0;
	if (b->error == cudaSuccess)
		b->error = r;
	return -EIO;
}

int batch_grow(struct batch *b, struct batch_buffer *buffer, size_t bytes, bool host)
{
	void *at = NULL;

	if (bytes <= buffer->bytes)
		return 0;
	bytes = host ? bytes + bytes / 2 : device_room(bytes);
	if (batch_expect(b, cudaStreamSynchronize(b->stream)) != 0)
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
