/*
 * blocks.c - free lists by size.
 *
 * A list that is empty gets a chunk cut up, the lowest address first. A block that is put back is
 * the next to be had: its lines are the warm ones.
 */
#include "blocks.h"
#include "proto/arith.h"

#include <stdbool.h>
#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

/* Under a sanitizer every block is malloc's, so that it is watched. */
#ifdef __SANITIZE_ADDRESS__
#define MAX_BYTES 0u
#else
#define MAX_BYTES ((size_t)1 << (BLOCKS_MIN_SHIFT + BLOCKS_CLASSES - 1))
#endif

struct blocks_chunk {
	_Alignas(64) struct blocks_chunk *next;
};

void blocks_init(struct blocks *b)
{
	*b = (struct blocks){0};
}

void blocks_done(struct blocks *b)
{
	while (b->chunks) {
		struct blocks_chunk *chunk = b->chunks;
		b->chunks = chunk->next;
		free(chunk);
	}
}

static unsigned class_of(size_t bytes)
{
	size_t last = bytes - (bytes > 0);

	return 63u - BLOCKS_MIN_SHIFT -
	       (unsigned)__builtin_clzll(last | (((size_t)1 << BLOCKS_MIN_SHIFT) - 1)) + 1;
}

static void block_push(struct blocks *b, unsigned class, void *block)
{
	*(void **)block = b->free[class];
	b->free[class] = block;
}

/* Cuts a new chunk up, the lowest address first in the list. */
static void class_grow(struct blocks *b, unsigned class)
{
	size_t bytes = (size_t)1 << (BLOCKS_MIN_SHIFT + class);
	struct blocks_chunk *chunk = aligned_alloc(_Alignof(struct blocks_chunk), CHUNK_BYTES);

	if (!chunk)
		return;
	chunk->next = b->chunks;
	b->chunks = chunk;
	size_t begin = max_u64(sizeof(*chunk), bytes);
	for (size_t at = CHUNK_BYTES - bytes; at >= begin; at -= bytes)
		block_push(b, class, (char *)chunk + at);
}

void *blocks_get(struct blocks *b, size_t *bytes)
{
	if (*bytes > MAX_BYTES)
		return malloc(*bytes);
	unsigned class = class_of(*bytes);
	if (!b->free[class])
		class_grow(b, class);
	void *block = b->free[class];
	if (!block)
		return NULL;
	b->free[class] = *(void **)block;
	__builtin_prefetch(b->free[class], 1);
	*bytes = (size_t)1 << (BLOCKS_MIN_SHIFT + class);
	return block;
}

void blocks_put(struct blocks *b, void *block, size_t bytes)
{
	if (bytes > MAX_BYTES)
		free(block);
	else if (block)
		block_push(b, class_of(bytes), block);
}

void *blocks_keep(struct blocks *b, void *block, size_t *bytes, size_t from, size_t n_kept)
{
	bool shrinks = *bytes > BLOCKS_LINE_BYTES && n_kept < *bytes / 2;
	const char *first = (char *)block + from;
	size_t n_bytes = n_kept;
	void *kept = shrinks ? blocks_get(b, &n_bytes) : NULL;

	if (!kept)
		return memmove(block, first, n_kept);
	memcpy(kept, first, n_kept);
	blocks_put(b, block, *bytes);
	*bytes = n_bytes;
	return kept;
}
