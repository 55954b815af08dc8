/*
 * summary.h - mean keys of paths whose KV is not in the pool (backend.h), as the CPU's backend has
 * them: [8 tokens][layer][KV head][head_dim], so that a longer path is only more of it.
 */
#ifndef COPPICE_CPU_SUMMARY_H
#define COPPICE_CPU_SUMMARY_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "pool.h"

struct backend_summary {
	struct work_shape shape;
	char *means; /* owned */
	uint32_t n_means; /* that there is room for; those that nobody has added are 0 */
};

MUST_CHECK int summary_new(const struct work_shape *shape, struct backend_summary **ret);
void summary_free(struct backend_summary *s);
/* 0, -ENOMEM, -EINVAL. */
MUST_CHECK int summary_add(struct backend_summary *s, const struct pool_pages *pages,
			   const struct vec *vec, const struct backend_span *span);

static inline void *summary_at(const struct backend_summary *s, uint32_t index, uint32_t layer,
			       uint32_t head)
{
	size_t at = ((size_t)index * s->shape.n_layers + layer) * s->shape.n_kv_heads + head;

	return s->means + at * s->shape.head_dim * work_dtype_bytes(s->shape.dtype);
}

static inline uint64_t summary_tokens(const struct backend_summary *s)
{
	return (uint64_t)s->n_means * BACKEND_SUMMARY_TOKENS;
}

#endif
