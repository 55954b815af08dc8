/*
 * pool.h - the memory of the KV pool and what lies where in a page.
 *
 *      pool      one mapping, extents of equal size; page p of a model with n pages an extent is
 *                page p % n of extent p / n
 *      page      [layer][KV head] block
 *      block     K [head_dim][page_tokens], then V [page_tokens][head_dim]
 *
 * K is stored with its keys side by side, so that scores are computed with vectors along the keys.
 * Lines are in the order of vec_place.
 */
#ifndef COPPICE_CPU_POOL_H
#define COPPICE_CPU_POOL_H

#include "proto/must_check.h"
#include "kernels/work.h"
#include "vec.h"

#include <stdbool.h>

#define POOL_DIM_MAX 256u

struct pool {
	char *base; /* owned mapping */
	uint64_t bytes;
	uint64_t extent_bytes;
	bool *committed; /* owned, [n_extents] */
	uint32_t n_extents;
};

/* 0 or -ENOMEM. Takes address space only. */
MUST_CHECK int pool_init(struct pool *pool, uint64_t bytes, uint64_t extent_bytes);
void pool_done(struct pool *pool);

/* Zeroed memory for an extent, or back to the system. 0, -ENOMEM, -EINVAL (no such extent or
 * already there). */
MUST_CHECK int pool_commit(struct pool *pool, uint32_t extent);
void pool_release(struct pool *pool, uint32_t extent);

/* Bytes of a page; 0, and a sentence, where no page of this shape can be. */
uint64_t pool_page_bytes(const struct pool *pool, const struct work_shape *shape, char *error,
			 size_t error_bytes);

/* A shape's pages in a pool. */
struct pool_pages {
	char *base;
	uint64_t extent_bytes;
	uint64_t page_bytes;
	uint32_t pages_per_extent;
	uint32_t n_pages; /* indices below this are in the pool */
	size_t layer_bytes;
	size_t block_bytes;
	size_t value_bytes; /* of K or V in a block; V begins there */
	uint16_t key_place[WORK_TILE_TOKENS];
	uint16_t dim_place[POOL_DIM_MAX];
};

void pool_pages_init(struct pool_pages *pages, const struct pool *pool,
		     const struct work_shape *shape, const struct vec *vec);

static inline char *pool_block(const struct pool_pages *p, uint32_t page, uint32_t layer,
			       uint32_t head)
{
	return p->base + (uint64_t)(page / p->pages_per_extent) * p->extent_bytes +
	       (page % p->pages_per_extent) * p->page_bytes + layer * p->layer_bytes +
	       head * p->block_bytes;
}

/* The key of a block's row, whose dimensions lie a line apart. */
void pool_key(const struct pool_pages *pages, const struct work_shape *shape, const char *block,
	      uint32_t row, char *ret);

#endif
