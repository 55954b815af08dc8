/*
 * weights.c - see weights.h. What is put is copied to a pinned piece, whence the copy engine takes
 * it while the next one is filled: a piece is written again only once it has crossed. When a put
 * returns, all of it is on the device, so that any stream may read it. Where nothing is put there
 * are zeros, as whole pages may be lent, and what was in them is another's.
 */
#include "weights.h"

#include "kernels/arith.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (UINT64_C(4) << 20)
#define PAGE_BYTES (UINT64_C(2) << 20)

/* Who has them mapped keeps the memory. */
static void memory_free(struct backend_weights *w)
{
	if (!w->base)
		return;
	cudaDeviceSynchronize();
	vmm_empty(&w->vmm, (uintptr_t)w->base, w->bytes);
	vmm_unreserve(&w->vmm, (uintptr_t)w->base, w->bytes);
	if (w->fd >= 0)
		close(w->fd);
}

void weights_free(struct backend_weights *w)
{
	if (!w)
		return;
	cudaSetDevice(w->device);
	for (uint32_t i = 0; i < WEIGHTS_PIECES; i++) {
		if (w->crossed[i])
			cudaEventDestroy(w->crossed[i]);
		cudaFreeHost(w->pieces[i]);
	}
	if (w->stream)
		cudaStreamDestroy(w->stream);
	memory_free(w);
	vmm_done(&w->vmm);
	free(w);
}

static int memory_new(struct backend_weights *w)
{
	uint64_t at;
	int r = vmm_init(&w->vmm, w->device);

	if (r == 0)
		r = vmm_reserve(&w->vmm, w->bytes, &at);
	if (r < 0)
		return r;
	r = vmm_fill_shared(&w->vmm, at, w->bytes, &w->fd);
	if (r < 0) /* some systems share no memory of the device */
		r = vmm_fill(&w->vmm, at, w->bytes);
	if (r < 0)
		vmm_unreserve(&w->vmm, at, w->bytes);
	else
		w->base = (char *)(uintptr_t)at;
	return r;
}

static bool init(struct backend_weights *w)
{
	cudaSetDevice(w->device);
	if (memory_new(w) < 0 ||
	    cudaStreamCreateWithFlags(&w->stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaMemsetAsync(w->base, 0, w->bytes, w->stream) != cudaSuccess)
		return false;
	for (uint32_t i = 0; i < WEIGHTS_PIECES; i++) {
		if (cudaMallocHost((void **)&w->pieces[i], PIECE_BYTES) != cudaSuccess ||
		    cudaEventCreateWithFlags(&w->crossed[i], cudaEventDisableTiming) != cudaSuccess)
			return false;
	}
	return true;
}

int weights_new(int device, uint64_t bytes, struct backend_weights **ret)
{
	struct backend_weights *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->device = device;
	w->fd = -1;
	w->bytes = align_to(max_u64(bytes, 1), PAGE_BYTES);
	if (!init(w)) {
		cudaGetLastError();
		weights_free(w);
		return -ENOMEM;
	}
	*ret = w;
	return 0;
}

static cudaError_t send(struct backend_weights *w, uint32_t piece, char *to, const char *from,
			uint64_t bytes)
{
	cudaError_t r = cudaEventSynchronize(w->crossed[piece]);

	if (r != cudaSuccess)
		return r;
	memcpy(w->pieces[piece], from, bytes);
	r = cudaMemcpyAsync(to, w->pieces[piece], bytes, cudaMemcpyHostToDevice, w->stream);
	return r == cudaSuccess ? cudaEventRecord(w->crossed[piece], w->stream) : r;
}

int weights_put(struct backend_weights *w, uint64_t offset, const void *from, uint64_t bytes)
{
	cudaError_t r = cudaSetDevice(w->device), end;
	uint32_t piece = 0;

	assert(offset <= w->bytes && bytes <= w->bytes - offset);
	for (uint64_t at = 0; at < bytes && r == cudaSuccess; at += PIECE_BYTES) {
		r = send(w, piece, w->base + offset + at, (const char *)from + at,
			 min_u64(bytes - at, PIECE_BYTES));
		piece = (piece + 1) % WEIGHTS_PIECES;
	}
	end = cudaStreamSynchronize(w->stream);
	return r == cudaSuccess && end == cudaSuccess ? 0 : -EIO;
}
