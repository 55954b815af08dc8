/*
 * heap.h - where the daemon writes rows of a decode: pieces of host arenas of a connection.
 *
 * A chunk is an arena of which pieces are cut from the front; when the last is given back it is
 * empty again. A piece that may still be written to is abandoned: its chunk gives out no more, and
 * goes when the others are back. The interpreter's lock is the heap's, but for what blocks.
 */
#ifndef COPPICE_PYTHON_HEAP_H
#define COPPICE_PYTHON_HEAP_H

#include "base.h"

struct heap_chunk;

struct heap {
	struct heap_chunk *chunks; /* owned */
};

struct heap_piece {
	struct heap_chunk *chunk; /* NULL: none */
	uint8_t *base;
	size_t bytes;
};

/* Makes an arena where none has room, which blocks, without the interpreter's lock. 0; -errno of
 * the library. */
MUST_CHECK int heap_take(struct heap *heap, struct coppice *c, size_t bytes,
			 struct heap_piece *ret);
/* abandoned: an entry in flight may write to it. c NULL: the connection has ended. */
void heap_give(struct heap *heap, struct coppice *c, struct heap_piece *piece, bool abandoned);
/* Once all pieces are back and the connection has ended. */
void heap_done(struct heap *heap);

#endif
