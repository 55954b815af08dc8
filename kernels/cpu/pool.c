/* pool.c - address space for the whole pool at once, memory extent by extent. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES (UINT64_C(2) << 20)

/* A mapping whose start is a multiple of 2 MiB, so that extents can be huge pages. */
static char *map_aligned(uint64_t bytes)
{
	uint64_t all = bytes + HUGE_BYTES;
	char *map = mmap(NULL, all, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED)
		return NULL;

	uint64_t before = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;

	if (before)
		munmap(map, before);
	munmap(map + before + bytes, all - before - bytes);
	return map + before;
}

int pool_init(struct pool *pool, uint64_t bytes, uint64_t extent_bytes)
{
	*pool = (struct pool){.bytes = bytes,
			      .extent_bytes = extent_bytes,
			      .n_extents = (uint32_t)(bytes / extent_bytes)};
	pool->committed = calloc(pool->n_extents, sizeof(*pool->committed));
	if (!pool->committed)
		return -ENOMEM;
	pool->base = map_aligned(bytes);
	if (!pool->base)
		return -ENOMEM;
	madvise(pool->base, bytes, MADV_HUGEPAGE);
	madvise(pool->base, bytes, MADV_DONTDUMP);
	return 0;
}

void pool_done(struct pool *pool)
{
	if (pool->base)
		munmap(pool->base, pool->bytes);
	free(pool->committed);
	*pool = (struct pool){0};
}

int pool_commit(struct pool *pool, uint32_t extent)
{
	char *at = pool->base + extent * pool->extent_bytes;

	if (extent >= pool->n_extents || pool->committed[extent])
		return -EINVAL;
	/* Populated now, so that a lack of memory is an error here and no fault in a batch; kernels
	 * before 5.14 do not know how. */
	if (madvise(at, pool->extent_bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		madvise(at, pool->extent_bytes, MADV_DONTNEED);
		return -ENOMEM;
	}
	pool->committed[extent] = true;
	return 0;
}

void pool_release(struct pool *pool, uint32_t extent)
{
	if (extent >= pool->n_extents || !pool->committed[extent])
		return;
	madvise(pool->base + extent * pool->extent_bytes, pool->extent_bytes, MADV_DONTNEED);
	pool->committed[extent] = false;
}

void pool_pages_init(struct pool_pages *pages, const struct pool *pool,
		     const struct work_shape *shape, const struct vec *vec)
{
	size_t value_bytes =
		(size_t)shape->page_tokens * shape->head_dim * work_dtype_bytes(shape->dtype);
	uint64_t layer_bytes = 2 * value_bytes * shape->n_kv_heads;
	uint64_t page_bytes = layer_bytes * shape->n_layers;

	*pages = (struct pool_pages){
		.base = pool->base,
		.extent_bytes = pool->extent_bytes,
		.page_bytes = page_bytes,
		.pages_per_extent = (uint32_t)(pool->extent_bytes / page_bytes),
		.layer_bytes = layer_bytes,
		.block_bytes = 2 * value_bytes,
		.value_bytes = value_bytes,
	};
	pages->n_pages = pages->pages_per_extent * pool->n_extents;
	for (uint32_t i = 0; i < shape->page_tokens; i++)
		pages->key_place[i] =
			(uint16_t)vec_place(vec->lanes, shape->dtype, shape->page_tokens, i);
	for (uint32_t i = 0; i < shape->head_dim; i++)
		pages->dim_place[i] =
			(uint16_t)vec_place(vec->lanes, shape->dtype, shape->head_dim, i);
}

void pool_key(const struct pool_pages *pages, const struct work_shape *shape, const char *block,
	      uint32_t row, char *ret)
{
	size_t bytes = work_dtype_bytes(shape->dtype), line = shape->page_tokens * bytes;
	const char *from = block + pages->key_place[row] * bytes;

	for (uint32_t d = 0; d < shape->head_dim; d++)
		__builtin_memcpy(ret + d * bytes, from + d * line, bytes);
}
