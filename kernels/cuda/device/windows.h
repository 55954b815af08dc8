/*
 * windows.h - a path in windows of 32 tokens, 4 KV blocks each: those that lie side by side in the
 * pool can be named by one word.
 */
#ifndef COPPICE_CUDA_WINDOWS_H
#define COPPICE_CUDA_WINDOWS_H

#include "shape.h"
#include "proto/arith.h"

#define WINDOW_TOKENS 32u /* ESTIMATE_WINDOW_TOKENS too, and a KV tile's */

static inline uint32_t windows_count(uint32_t n_tokens)
{
	return ceil_div(n_tokens, WINDOW_TOKENS);
}

/* Of a path's slices, from position 0 on. ret [windows_count()]: as shape_source, of the window's
 * first KV block if its tokens, as many as it has, are those of KV blocks side by side from a KV
 * block's first on; else DEVICE_NONE. Returns 0 if that is only where the page of all of a window's
 * tokens is WORK_NONE. */
uint32_t windows_find(const struct pool *pool, const struct work_shape *shape,
		      const struct work_slice *slices, uint32_t n_slices, uint32_t *ret);

#endif
