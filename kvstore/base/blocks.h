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
#include <string.h>

#define BLOCKS_LINE_BYTES 64u
#define BLOCKS_MIN_SHIFT 4
#define BLOCKS_CLASSES 8 /* 16 bytes to 2 KiB */

struct blocks_chunk;

struct blocks {
	void *free[BLOCKS_CLASSES]; /* each block begins with the next one */
	struct blocks_chunk *chunks; /* owned, all */
};

void blocks_init(struct blocks *b);
void blocks_done(struct blocks *b);
/* At least *bytes; says how much it is. NULL: no memory. */
void *blocks_get(struct blocks *b, size_t *bytes);
/* bytes as blocks_get said. NULL is fine. */
void blocks_put(struct blocks *b, void *block, size_t bytes);

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
