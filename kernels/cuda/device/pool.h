/*
 * pool.h - the KV pool on the device: one reserved range of addresses, in which an extent has
 * memory of its own while it is committed.
 */
#ifndef COPPICE_CUDA_POOL_H
#define COPPICE_CUDA_POOL_H

#include "vmm.h"

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

struct CUstream_st;

struct pool {
	struct vmm vmm;
	uint64_t bytes, extent_bytes;
	uint32_t n_extents;
	uint64_t base; /* device address of extent 0 */
	bool *mapped; /* owned, [n_extents] */
	struct CUstream_st *beside; /* owned; NULL: nothing was prepared yet */
};

/* 0, -ENOMEM, or -EIO where the driver lacks what it takes. Blocks. */
MUST_CHECK int pool_init(struct pool *pool, int device, uint64_t pool_bytes, uint64_t extent_bytes);
/* Nothing may be running on the pool any more. */
void pool_done(struct pool *pool);

/* Memory for the extent, zeroed in order with the stream. 0, -ENOMEM, -EINVAL where it has some
 * already. */
MUST_CHECK int pool_commit(struct pool *pool, uint32_t extent, struct CUstream_st *stream);
/* The same on any thread, one at a time: blocks until the memory is there, and zeroed. */
MUST_CHECK int pool_prepare(struct pool *pool, uint32_t extent);
/* Zeros in its memory, in order with the stream. 0 or -EIO. */
MUST_CHECK int pool_clear(const struct pool *pool, uint32_t extent, struct CUstream_st *stream);
/* As pool_done for one extent. */
void pool_release(struct pool *pool, uint32_t extent);

#endif
