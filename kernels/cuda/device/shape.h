/* shape.h - of a model's shape: whether the kernels can work with it, and where its pages, rows and
 * heads lie. */
#ifndef COPPICE_CUDA_SHAPE_H
#define COPPICE_CUDA_SHAPE_H

#include "format.h"
#include "pool.h"
#include "row_map.h"
#include "kernels/work.h"

#include <stddef.h>

/* Where pages lie, in KV_SOURCE_BYTES. */
struct pool_pages {
	uint32_t per_extent;
	uint64_t page_sources, extent_sources;
};

/* Bytes of a page that the kernels can work with; 0 where they cannot, and why. */
uint64_t shape_page_bytes(const struct pool *pool, const struct work_shape *shape, char *error,
			  size_t error_bytes);

/* ---- of a shape that shape_page_bytes takes ------------------------------------------------- */

struct pool_pages shape_pages(const struct pool *pool, const struct work_shape *shape);
/* Where the KV block of a page's row lies. */
uint32_t shape_source(const struct work_shape *shape, const struct pool_pages *pages, uint32_t page,
		      uint32_t row);
/* As kernels are told of it. */
struct device_shape shape_on_device(const struct work_shape *shape);

/* Of a row of Q or O. */
static inline size_t shape_row_bytes(const struct work_shape *shape)
{
	return (size_t)shape->n_q_heads * shape->head_dim * 2;
}

/* Query heads, over all KV heads, of a row of a schedule. */
static inline uint32_t shape_row_heads(const struct work_shape *shape)
{
	return shape->n_kv_heads * row_map_of(shape).heads;
}

/* Of the query heads of one KV head in it. */
static inline size_t shape_kv_block_bytes(const struct work_shape *shape)
{
	return shape_row_bytes(shape) / shape->n_kv_heads;
}

#endif
