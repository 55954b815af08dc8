/*
 * arenas.c - device memory that clients map; see arenas.h. Addresses are given back with the memory
 * behind them: nobody else knows anything by them.
 */
#include "arenas.h"

#include "uuid.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct arenas_block {
	uint64_t at, bytes;
};

int arenas_init(struct arenas *arenas, int device)
{
	*arenas = (struct arenas){0};
	return vmm_init(&arenas->vmm, device);
}

void arenas_done(struct arenas *arenas)
{
	vmm_done(&arenas->vmm);
	free(arenas->blocks);
	*arenas = (struct arenas){0};
}

void arenas_let(struct arenas *arenas, int device)
{
	assert(arenas->n_peers < BACKEND_DEVICES_MAX);
	arenas->peers[arenas->n_peers++] = device;
}

static void describe_device(const struct arenas *arenas, struct backend_arena *arena)
{
	int device = arenas->vmm.device, mps = 0;

	uuid_of_device(device, arena->device);
	arena->time_sliced =
		cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, device) == cudaSuccess &&
		mps == 0;
	cudaGetLastError();
}

static int let_peers(const struct arenas *arenas, const struct arenas_block *block)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < arenas->n_peers; i++)
		r = vmm_let(&arenas->vmm, block->at, block->bytes, arenas->peers[i]);
	return r;
}

static int clear(const struct arenas_block *block, struct CUstream_st *stream)
{
	bool done = cudaMemsetAsync((void *)(uintptr_t)block->at, 0, block->bytes, stream) ==
			    cudaSuccess &&
		    cudaStreamSynchronize(stream) == cudaSuccess;

	return done ? 0 : -EIO;
}

/* Memory at the block's addresses, zeroed. */
static int fill(const struct arenas *arenas, const struct arenas_block *block,
		struct CUstream_st *stream, int *ret_fd)
{
	int fd, r = vmm_fill_shared(&arenas->vmm, block->at, block->bytes, &fd);

	if (r < 0)
		return r;
	r = let_peers(arenas, block);
	if (r == 0)
		r = clear(block, stream);
	if (r == 0) {
		*ret_fd = fd;
		return 0;
	}
	vmm_empty(&arenas->vmm, block->at, block->bytes);
	close(fd);
	return r;
}

static int block_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream, int *ret_fd)
{
	struct arenas_block block = {.bytes = bytes}, *blocks;
	int r;

	blocks = realloc(arenas->blocks, (arenas->n_blocks + 1) * sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	arenas->blocks = blocks;
	r = vmm_reserve(&arenas->vmm, bytes, &block.at);
	if (r < 0)
		return r;
	r = fill(arenas, &block, stream, ret_fd);
	if (r < 0)
		vmm_unreserve(&arenas->vmm, block.at, bytes);
	else
		blocks[arenas->n_blocks++] = block;
	return r;
}

int arenas_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream,
	       struct backend_arena *ret)
{
	static const uint8_t any[BACKEND_DEVICE_BYTES];
	struct backend_arena arena = {0};
	int r;

	describe_device(arenas, &arena);
	if (memcmp(ret->device, any, sizeof(any)) != 0 &&
	    memcmp(ret->device, arena.device, sizeof(any)) != 0)
		return -ENODEV;
	r = block_new(arenas, bytes, stream, &arena.fd);
	if (r < 0)
		return r;
	arena.base = arenas->blocks[arenas->n_blocks - 1].at;
	*ret = arena;
	return 0;
}

void arenas_free(struct arenas *arenas, uint64_t base)
{
	uint32_t i = 0;

	while (i < arenas->n_blocks && arenas->blocks[i].at != base)
		i++;
	assert(i < arenas->n_blocks);
	cudaDeviceSynchronize();
	vmm_empty(&arenas->vmm, base, arenas->blocks[i].bytes);
	vmm_unreserve(&arenas->vmm, base, arenas->blocks[i].bytes);
	arenas->blocks[i] = arenas->blocks[--arenas->n_blocks];
}
