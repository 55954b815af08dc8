/*
 * blocks.c - free lists by size.
 *
 * Where a list is empty a block is cut off a chunk, the lowest address first, and no call touches
 * more than that. A block that is put back is the next to be had: its lines are the warm ones.
 */
#include "blocks.h"
#include "proto/arith.h"

#include <stdbool.h>
#include <stdlib.h>

#define CHUNK_BYTES (64u << 10)

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

/* A chunk for blocks of a class. */
static bool class_grow(struct blocks *b, unsigned class, size_t bytes)
{
	struct blocks_chunk *chunk = aligned_alloc(_Alignof(struct blocks_chunk), CHUNK_BYTES);

	if (!chunk)
		return false;
	chunk->next = b->chunks;
	b->chunks = chunk;
	b->fresh[class] = (char *)chunk + max_u64(sizeof(*chunk), bytes);
	b->n_fresh[class] = (uint32_t)(((char *)chunk + CHUNK_BYTES - b->fresh[class]) / bytes);
	return true;
}

void *blocks_cut(struct blocks *b, unsigned class, size_t bytes)
{
	if (b->n_fresh[class] == 0 && !class_grow(b, class, bytes))
		return NULL;
	void *block = b->fresh[class];
	b->fresh[class] += bytes;
	b->n_fresh[class]--;
	__builtin_prefetch(b->fresh[class], 1);
	return block;
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
