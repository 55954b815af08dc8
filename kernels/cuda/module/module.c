/*
 * module.c - what coppice-cuda.so exports beside the backend's table: arenas, figures and choices
 * for benches and tests; see module.h.
 */
#include "module.h"
#include "backend_impl.h"
#include "measure.h"
#include "kernels/cuda/device/stream.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>

int coppice_cuda_arena_new(struct backend *b, uint64_t bytes, uint64_t *ret_base)
{
	void *at;

	backend_enter(b);
	if (cudaMalloc(&at, bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	*ret_base = (uintptr_t)at;
	return 0;
}

int coppice_cuda_arena_copy(struct backend *b, void *to, const void *from, uint64_t bytes)
{
	backend_enter(b);
	if (cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->batch.queue.stream) !=
		    cudaSuccess ||
	    cudaStreamSynchronize(b->batch.queue.stream) != cudaSuccess)
		return -EIO;
	return 0;
}

void coppice_cuda_arena_free(struct backend *b, uint64_t base)
{
	backend_enter(b);
	if (backend_await_idle(b))
		cudaFree((void *)(uintptr_t)base);
}

void coppice_cuda_describe(struct backend *b, struct cuda_card *ret)
{
	struct cudaDeviceProp prop;

	*ret = (struct cuda_card){.n_blocks = b->batch.n_blocks,
				  .code = b->batch.code,
				  .costs = b->batch.costs};
	if (cudaGetDeviceProperties(&prop, b->device) == cudaSuccess)
		snprintf(ret->name, sizeof(ret->name), "%.63s", prop.name);
}

void coppice_cuda_plan_as(struct backend *b, const struct costs *costs,
			  const struct schedule_choice *choice)
{
	b->batch.costs = costs;
	b->batch.choice = *choice;
}

int coppice_cuda_measure(struct backend *b, uint64_t flush_bytes, uint32_t n, float *ret_us)
{
	backend_enter(b);
	return measure_attention(&b->batch, false, flush_bytes, n, ret_us);
}

int coppice_cuda_clocks(struct backend *b, uint64_t flush_bytes, struct device_clocks *ret)
{
	backend_enter(b);
	return measure_clocks(&b->batch, flush_bytes, ret);
}

int coppice_cuda_measure_step(struct backend *b, uint64_t flush_bytes, uint32_t n, float *ret_us)
{
	backend_enter(b);
	return measure_attention(&b->batch, true, flush_bytes, n, ret_us);
}

int coppice_cuda_measure_products(struct backend *b, struct backend_program *program,
				  uint32_t n_rows, uint32_t n, float *ret_us)
{
	backend_enter(b);
	return measure_products(&b->batch, program, n_rows, n, ret_us);
}

static void list_members(const struct cuda_group *group, struct measure_members *ret)
{
	ret->n = min_u32(group->n_members, PEERS_MAX);
	for (uint32_t i = 0; i < ret->n; i++) {
		ret->batches[i] = &group->members[i]->batch;
		ret->devices[i] = group->members[i]->device;
	}
}

int coppice_cuda_measure_group(const struct cuda_group *group,
			       const struct cuda_measure_layers *how, uint32_t n, float *ret_us,
			       struct cuda_measure_stamp *ret_stamps)
{
	struct measure_members all;

	list_members(group, &all);
	for (uint32_t i = 0; i < group->n_members; i++)
		backend_enter(group->members[i]);
	return measure_group(&all, how, n, ret_us, ret_stamps);
}

int coppice_cuda_free_bytes(struct backend *b, uint64_t *ret)
{
	size_t free_bytes, all_bytes;

	backend_enter(b);
	if (cudaMemGetInfo(&free_bytes, &all_bytes) != cudaSuccess)
		return -EIO;
	*ret = free_bytes;
	return 0;
}

int coppice_cuda_stream(const struct cuda_stream_tiles *tiles, uint64_t flush_bytes, uint64_t bytes,
			uint32_t n, float *ret_us)
{
	const struct stream_tiles of = {.pool_bytes = tiles->pool_bytes,
					.tile_bytes = tiles->tile_bytes,
					.ring_bytes = tiles->ring_bytes,
					.blocks = tiles->blocks};

	return stream_read(&of, flush_bytes, bytes, n, ret_us);
}
