/*
 * arenas.c - device memory that clients open, each block an allocation of its own; see arenas.h.
 *
 * The driver may give out the handle of a block that was freed once more, for another. A client
 * that still has the old one open would then see the new block. So hashes of handles are
 * remembered; a block whose handle is known is held back until another was found, and freed then. A
 * hash that two handles share costs a block held back in vain, no more.
 *
 * That keeps mappings apart, not handles: one that was kept opens whatever block is exported next
 * at its address, under another handle (seen with driver 580).
 */
#include "arenas.h"

#include "handle.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 16u /* blocks held back while a new handle is looked for */

int arenas_init(struct arenas *arenas, int device)
{
	*arenas = (struct arenas){.device = device,
				  .known = calloc(ARENAS_KNOWN, sizeof(*arenas->known))};
	return arenas->known ? 0 : -ENOMEM;
}

void arenas_done(struct arenas *arenas)
{
	free(arenas->known);
	*arenas = (struct arenas){0};
}

static uint64_t hash_of(const uint8_t handle[BACKEND_HANDLE_BYTES])
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < BACKEND_HANDLE_BYTES; i++)
		hash = (hash ^ handle[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static bool is_known(const struct arenas *arenas, uint64_t hash)
{
	uint64_t n = arenas->n_known < ARENAS_KNOWN ? arenas->n_known : ARENAS_KNOWN;

	for (uint64_t i = 0; i < n; i++) {
		if (arenas->known[i] == hash)
			return true;
	}
	return false;
}

static int take_block(uint64_t bytes, void **ret_at, uint8_t ret_handle[BACKEND_HANDLE_BYTES])
{
	int r;

	if (cudaMalloc(ret_at, bytes) != cudaSuccess) {
		cudaGetLastError();
		return -ENOMEM;
	}
	r = handle_make(*ret_at, bytes, ret_handle);
	if (r < 0)
		cudaFree(*ret_at);
	return r;
}

/* A block under a handle that nobody has had. */
static int find_block(struct arenas *arenas, uint64_t bytes, void **ret_at,
		      uint8_t handle[BACKEND_HANDLE_BYTES])
{
	void *held[TRIES];
	uint32_t n = 0;
	int r = take_block(bytes, &held[0], handle);

	while (r == 0 && is_known(arenas, hash_of(handle))) {
		n++;
		r = n < TRIES ? take_block(bytes, &held[n], handle) : -ENOMEM;
	}
	if (r == 0)
		*ret_at = held[n];
	for (uint32_t i = 0; i < n; i++)
		cudaFree(held[i]);
	return r;
}

static void describe_device(const struct arenas *arenas, struct backend_arena *arena)
{
	int mps = 0;

	handle_device(arenas->device, arena->device);
	arena->time_sliced = cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, arenas->device) ==
				     cudaSuccess &&
			     mps == 0;
	cudaGetLastError();
}

int arenas_new(struct arenas *arenas, uint64_t bytes, struct CUstream_st *stream,
	       struct backend_arena *ret)
{
	static const uint8_t any[BACKEND_DEVICE_BYTES];
	struct backend_arena arena = {0};
	void *at = NULL;
	int r;

	describe_device(arenas, &arena);
	if (memcmp(ret->device, any, sizeof(any)) != 0 &&
	    memcmp(ret->device, arena.device, sizeof(any)) != 0)
		return -ENODEV;
	r = find_block(arenas, bytes, &at, arena.handle);
	if (r)
		return r;
	if (cudaMemsetAsync(at, 0, bytes, stream) != cudaSuccess ||
	    cudaStreamSynchronize(stream) != cudaSuccess) {
		cudaFree(at);
		return -EIO;
	}
	arenas->known[arenas->n_known++ % ARENAS_KNOWN] = hash_of(arena.handle);
	arena.base = (uintptr_t)at;
	*ret = arena;
	return 0;
}

void arenas_free(uint64_t base, struct CUstream_st *stream)
{
	cudaStreamSynchronize(stream);
	cudaFree((void *)(uintptr_t)base);
}
