/*
 * weights.c - see weights.h. How what is put comes to the device is ferry.c's: when a put returns,
 * all of it is there, so that any stream may read it. Where nothing is put there are zeros, as
 * whole pages may be lent, and what was in them is another's.
 */
#include "weights.h"

#include "proto/arith.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

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
	cudaSetDevice(w->ferry->device);
	memory_free(w);
	vmm_done(&w->vmm);
	free(w);
}

static int memory_new(struct backend_weights *w)
{
	uint64_t at;
	int r = vmm_init(&w->vmm, w->ferry->device);

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

int weights_new(struct ferry *ferry, uint64_t bytes, struct backend_weights **ret)
{
	struct backend_weights *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->ferry = ferry;
	w->fd = -1;
	w->bytes = align_to(max_u64(bytes, 1), WEIGHTS_GRAIN);
	cudaSetDevice(ferry->device);
	if (memory_new(w) < 0 || ferry_clear(ferry, w->base, w->bytes) < 0) {
		cudaGetLastError();
		weights_free(w);
		return -ENOMEM;
	}
	*ret = w;
	return 0;
}

int weights_put(struct backend_weights *w, uint64_t offset, const void *from, uint64_t bytes)
{
	assert(offset <= w->bytes && bytes <= w->bytes - offset);
	return ferry_put(w->ferry, w->base + offset, from, bytes);
}
