/*
 * blocks.h - memory for the arrays of nodes and for sequences: sizes of 2^k bytes, each with a list
 * of free ones.
 *
 * A store has millions of short token runs and frees them in an order of its own; a general
 * allocator merges and sorts what is freed, now and then for milliseconds. Here getting and putting
 * back touch the block and nothing else. Blocks of a line and more begin at one. Large blocks are
 * malloc's. Chunks stay until the end.
 */
#ifndef COPPICE_KVSTORE_BLOCKS_H
#define COPPICE_KVSTORE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_LINE_BYTES 64u
#define BLOCKS_MIN_SHIFT 4
#define BLOCKS_CLASSES 8 /* 16 bytes to 2 KiB */

/* Under a sanitizer every block is malloc's, so that it is watched. */
#ifdef __SANITIZE_ADDRESS__
#define BLOCKS_MAX_BYTES 0u
#else
#define BLOCKS_MAX_BYTES ((size_t)1 << (BLOCKS_MIN_SHIFT + BLOCKS_CLASSES - 1))
#endif

struct blocks_chunk;

struct blocks {
	void *free[BLOCKS_CLASSES]; /* each block begins with the next one */
	char *fresh[BLOCKS_CLASSES]; /* the rest of the last chunk, which nobody has had yet */
	uint32_t n_fresh[BLOCKS_CLASSES]; /* blocks in it */
	struct blocks_chunk *chunks; /* owned, all */
};

void blocks_init(struct blocks *b);
void blocks_done(struct blocks *b);

static inline unsigned blocks_class(size_t bytes)
{
	size_t last = bytes - (bytes > 0);

	return 63u - BLOCKS_MIN_SHIFT -
	       (unsigned)__builtin_clzll(last | (((size_t)1 << BLOCKS_MIN_SHIFT) - 1)) + 1;
}

/* One of a class that nobody has had yet. NULL: no memory. */
void *blocks_cut(struct blocks *b, unsigned class, size_t bytes);

/* At least *bytes; says how much it is. NULL: no memory. */
static inline void *blocks_get(struct blocks *b, size_t *bytes)
{
	if (*bytes > BLOCKS_MAX_BYTES)
		return malloc(*bytes);
	unsigned class = blocks_class(*bytes);
	void *block = b->free[class];
	*bytes = (size_t)1 << (BLOCKS_MIN_SHIFT + class);
	if (!block)
		return blocks_cut(b, class, *bytes);
	b->free[class] = *(void **)block;
	__builtin_prefetch(b->free[class], 1);
	return block;
}

/* bytes as blocks_get said. NULL is fine. */
static inline void blocks_put(struct blocks *b, void *block, size_t bytes)
{
	if (bytes > BLOCKS_MAX_BYTES) {
		free(block);
	} else if (block) {
		unsigned class = blocks_class(bytes);
		*(void **)block = b->free[class];
		b->free[class] = block;
	}
}

/* Of a block of *bytes so many from `from` on, the others go: in a block that is smaller, if less
 * than half is left and there is memory. Returns it; *bytes is how much it is. */
void *blocks_keep(struct blocks *b, void *block, size_t *bytes, size_t from, size_t n_kept);

/* Zeroes whole lines. Line by line, as a string instruction, which compilers take for more at once,
 * begins slowly. */
static inline void blocks_clear(void *block, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += BLOCKS_LINE_BYTES)
		memset((char *)block + at, 0, BLOCKS_LINE_BYTES);
}

#endif
