/*
 * pool.c - address space for the whole pool at once, memory extent by extent; and which shapes of
 * KV are taken.
 */
#include "pool.h"
#include "huge.h"
#include "kernels/heads.h"
#include "kernels/pool_config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int pool_init(struct pool *pool, uint64_t bytes, uint64_t extent_bytes)
{
	*pool = (struct pool){.bytes = bytes,
			      .extent_bytes = extent_bytes,
			      .n_extents = (uint32_t)(bytes / extent_bytes)};
	pool->committed = calloc(pool->n_extents, sizeof(*pool->committed));
	if (!pool->committed)
		return -ENOMEM;
	pool->base = huge_map(bytes);
	return pool->base ? 0 : -ENOMEM;
}

void pool_done(struct pool *pool)
{
	if (pool->base)
		huge_unmap(pool->base, pool->bytes);
	free(pool->committed);
	*pool = (struct pool){0};
}

int pool_commit(struct pool *pool, uint32_t extent)
{
	char *at = pool->base + extent * pool->extent_bytes;

	if (extent >= pool->n_extents || pool->committed[extent])
		return -EINVAL;
	if (huge_populate(at, pool->extent_bytes) != 0)
		return -ENOMEM;
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

static bool check_shape(const struct work_shape *s, char *error, size_t error_bytes)
{
	if (!heads_check(s, error, error_bytes))
		return false;
	if (s->head_dim == 0 || s->head_dim % 16 != 0 || s->head_dim > POOL_DIM_MAX)
		say(error, error_bytes, "head_dim %u is no multiple of 16 from 16 to %u",
		    s->head_dim, POOL_DIM_MAX);
	else if (s->page_tokens != 16 && s->page_tokens != 32 && s->page_tokens != 64)
		say(error, error_bytes, "page_tokens %u is not 16, 32 or 64", s->page_tokens);
	else if (s->dtype != WORK_FP32 && s->dtype != WORK_FP16 && s->dtype != WORK_BF16)
		say(error, error_bytes, "dtype %d is not fp32, fp16 or bf16", (int)s->dtype);
	else
		return true;
	return false;
}

uint64_t pool_page_bytes(const struct pool *pool, const struct work_shape *shape, char *error,
			 size_t error_bytes)
{
	if (!check_shape(shape, error, error_bytes))
		return 0;
	return pool_config_page_bytes(shape, pool->extent_bytes, error, error_bytes);
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
