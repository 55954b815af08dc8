/*
 * pool_config.h - what every backend asks of the sizes of its pool.
 */
#ifndef COPPICE_POOL_CONFIG_H
#define COPPICE_POOL_CONFIG_H

#include "backend.h"
#include "proto/must_check.h"
#include "say.h"

#include <errno.h>

#define EXTENT_STEP (UINT64_C(2) << 20) /* extents are multiples of it */

/* 0, or -EINVAL and a sentence in error. */
MUST_CHECK static inline int pool_config_check(const struct backend_config *config, char *error,
					       size_t error_bytes)
{
	if (config->extent_bytes == 0 || config->extent_bytes % EXTENT_STEP != 0) {
		say(error, error_bytes, "extent_bytes %llu is no multiple of 2 MiB",
		    (unsigned long long)config->extent_bytes);
		return -EINVAL;
	}
	if (config->pool_bytes == 0 || config->pool_bytes % config->extent_bytes != 0) {
		say(error, error_bytes, "pool_bytes %llu is no multiple of extent_bytes %llu",
		    (unsigned long long)config->pool_bytes,
		    (unsigned long long)config->extent_bytes);
		return -EINVAL;
	}
	return 0;
}

/* Of a page, all of its layers and heads. 0 where an extent is smaller, and a sentence in error. */
static inline uint64_t pool_config_page_bytes(const struct work_shape *shape, uint64_t extent_bytes,
					      char *error, size_t error_bytes)
{
	uint64_t token_bytes = 2 * (uint64_t)shape->head_dim * work_dtype_bytes(shape->dtype);
	uint64_t bytes = token_bytes * shape->page_tokens;

	if (!__builtin_mul_overflow(bytes, shape->n_kv_heads, &bytes) &&
	    !__builtin_mul_overflow(bytes, shape->n_layers, &bytes) && bytes <= extent_bytes)
		return bytes;
	say(error, error_bytes,
	    "a page of %u tokens, %u layers and %u KV heads is larger than an extent of %llu bytes",
	    shape->page_tokens, shape->n_layers, shape->n_kv_heads,
	    (unsigned long long)extent_bytes);
	return 0;
}

#endif
