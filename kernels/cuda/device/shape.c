/*
 * shape.c - what the kernels can work with, and where its pages lie. A page of a shape that is
 * taken is a whole number of KV_SOURCE_BYTES and fits an extent, so that one word names any
 * KV block of a pool. See shape.h.
 */
#include "shape.h"
#include "kernels/heads.h"
#include "kernels/pool_config.h"
#include "kernels/say.h"

#define LOG2_E 1.4426950408889634
#define NAME_DIM(dim) #dim ", "
#define DIM_NAMES KV_HEAD_DIMS(NAME_DIM)

static bool check_shape(const struct work_shape *s, char *error, size_t error_bytes)
{
	if (!heads_check(s, error, error_bytes))
		return false;
	if (!kv_takes_dim(s->head_dim))
		say(error, error_bytes,
		    "head_dim %u is none of " DIM_NAMES "which the GPU computes; backend = cpu "
		    "takes it",
		    s->head_dim);
	else if (s->page_tokens != 16 && s->page_tokens != 32 && s->page_tokens != 64)
		say(error, error_bytes, "page_tokens %u is not 16, 32 or 64", s->page_tokens);
	else if (s->dtype == WORK_FP32)
		say(error, error_bytes,
		    "dtype fp32 is not computed on the GPU: use fp16 or bf16, or backend = cpu");
	else if (s->dtype != WORK_FP16 && s->dtype != WORK_BF16)
		say(error, error_bytes, "dtype %d is not fp16 or bf16", (int)s->dtype);
	else
		return true;
	return false;
}

uint64_t shape_page_bytes(const struct pool *pool, const struct work_shape *shape, char *error,
			  size_t error_bytes)
{
	if (!check_shape(shape, error, error_bytes))
		return 0;
	return pool_config_page_bytes(shape, pool->extent_bytes, error, error_bytes);
}

struct pool_pages shape_pages(const struct pool *pool, const struct work_shape *shape)
{
	uint64_t bytes = shape_page_bytes(pool, shape, NULL, 0);

	return (struct pool_pages){
		.per_extent = (uint32_t)(pool->extent_bytes / bytes),
		.page_sources = bytes / KV_SOURCE_BYTES,
		.extent_sources = pool->extent_bytes / KV_SOURCE_BYTES,
	};
}

uint32_t shape_source(const struct work_shape *shape, const struct pool_pages *pages, uint32_t page,
		      uint32_t row)
{
	uint64_t at = page / pages->per_extent * pages->extent_sources +
		      page % pages->per_extent * pages->page_sources;

	return (uint32_t)(at + row / KV_BLOCK_TOKENS * kv_block_sources(shape));
}

struct device_shape shape_on_device(const struct work_shape *shape)
{
	return (struct device_shape){
		.head_dim = shape->head_dim,
		.bf16 = shape->dtype == WORK_BF16,
		.n_kv_heads = shape->n_kv_heads,
		.group = shape->n_q_heads / shape->n_kv_heads,
		.row_heads = row_map_of(shape).heads,
		.head_bytes = kv_head_bytes(shape),
		.scale_log2 = (float)(shape->scale * LOG2_E),
	};
}
