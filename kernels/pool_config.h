/*
 * pool_config.h - what every backend asks of the sizes of its pool.
 */
#ifndef COPPICE_POOL_CONFIG_H
#define COPPICE_POOL_CONFIG_H

#include "backend.h"
#include "proto/must_check.h"
#include "proto/size_text.h"
#include "say.h"

#include <errno.h>

#define EXTENT_STEP (UINT64_C(2) << 20) /* extents are multiples of it */

/* 0, or -EINVAL and a sentence in error. */
MUST_CHECK static inline int pool_config_check(const struct backend_config *config, char *error,
					       size_t error_bytes)
{
	if (config->extent_bytes == 0 || config->extent_bytes % EXTENT_STEP != 0) {
		say(error, error_bytes, "extents of %s are no multiple of 2M",
		    size_text(config->extent_bytes, 0).text);
		return -EINVAL;
	}
	if (config->pool_bytes == 0 || config->pool_bytes % config->extent_bytes != 0) {
		say(error, error_bytes, "a pool of %s is no multiple of extents of %s",
		    size_text(config->pool_bytes, 0).text, size_text(config->extent_bytes, 0).text);
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
	    "a page of %u tokens, %u layers and %u KV heads is larger than an extent of %s",
	    shape->page_tokens, shape->n_layers, shape->n_kv_heads,
	    size_text(extent_bytes, 0).text);
	return 0;
}

#endif
