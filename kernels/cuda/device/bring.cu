/*
 * bring.cu - see bring.h.
 *
 * copy     grid: (parts of a row, rows); a thread takes COPY_EACH words, a block's width apart. 16
 *          bytes a word where addresses and lengths allow it, else one.
 * outbound a block for every row of O that must not lie where attention can write it.
 */
#include "bring.h"
#include "launch.cuh"
#include "proto/arith.h"

#include <cuda_runtime_api.h>

#define COPY_THREADS 256u
#define COPY_EACH 4u
#define OUTBOUND_WARPS 4u

template <typename WORD>
__global__ void __launch_bounds__(COPY_THREADS)
	copy_kernel(const __grid_constant__ struct device_bring c)
{
	const WORD *from = (const WORD *)(c.from + blockIdx.y * c.from_stride);
	WORD *to = (WORD *)(c.to + blockIdx.y * c.to_stride), words[COPY_EACH];
	uint64_t n = c.row_bytes / sizeof(WORD),
		 at = (uint64_t)blockIdx.x * COPY_EACH * COPY_THREADS + threadIdx.x;

#pragma unroll
	for (uint32_t i = 0; i < COPY_EACH; i++)
		if (at + i * COPY_THREADS < n)
			words[i] = from[at + i * COPY_THREADS];
#pragma unroll
	for (uint32_t i = 0; i < COPY_EACH; i++)
		if (at + i * COPY_THREADS < n)
			to[at + i * COPY_THREADS] = words[i];
}

template <typename WORD> static int launch(const struct device_bring *c, device_stream stream)
{
	uint64_t each = COPY_EACH * COPY_THREADS * sizeof(WORD);
	dim3 grid((unsigned)ceil_div_u64(c->row_bytes, each), c->n_rows);

	copy_kernel<WORD><<<grid, COPY_THREADS, 0, stream>>>(*c);
	return cudaGetLastError();
}

/* A block a copy. */
__global__ void __launch_bounds__(OUTBOUND_WARPS * 32)
	outbound_kernel(const __grid_constant__ struct device_outbound a)
{
#if __CUDA_ARCH__ >= 800
	struct device_copy copy = a.copies[blockIdx.x];

	for (uint32_t i = threadIdx.x * 2; i < a.bytes; i += OUTBOUND_WARPS * 64)
		*(uint16_t *)(copy.to + i) = *(const uint16_t *)(copy.from + i);
#endif
}

extern "C" int device_bring(const struct device_bring *copy, device_stream stream)
{
	uint64_t all = copy->from | copy->to | copy->row_bytes |
		       (copy->n_rows > 1 ? copy->from_stride | copy->to_stride : 0);

	if (copy->row_bytes == 0 || copy->n_rows == 0)
		return cudaSuccess;
	return all % 16 == 0 ? launch<uint4>(copy, stream) : launch<uint8_t>(copy, stream);
}

extern "C" int device_bring_init(void)
{
	return load_kernels(copy_kernel<uint4>, copy_kernel<uint8_t>, outbound_kernel);
}

extern "C" int device_outbound(const struct device_outbound *outbound, struct launch_to to)
{
	struct launch_shape shape = {outbound->n, OUTBOUND_WARPS * 32, 0};

	return outbound->n ? launch_kernel(outbound_kernel, outbound, shape, false, to)
			   : (int)cudaSuccess;
}
