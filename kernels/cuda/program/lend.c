/*
 * lend.c - weights are a plain allocation of whole pages, so that a handle opens them alone. It may
 * be asked for while programs run: nothing is put on a stream.
 */
#include "lend.h"

#include "weights.h"

#include "kernels/cuda/device/handle.h"

#include <cuda_runtime_api.h>
#include <errno.h>

int lend_weights(const struct backend_weights *w, struct backend_lent *ret)
{
	struct backend_lent lent = {.bytes = w->bytes, .fd = -1};
	int r;

	if (cudaSetDevice(w->device) != cudaSuccess)
		return -EIO;
	r = handle_make(w->base, w->bytes, lent.handle);
	if (r < 0)
		return r;
	handle_device(w->device, lent.device);
	*ret = lent;
	return 0;
}
