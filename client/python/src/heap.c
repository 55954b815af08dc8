/*
 * heap.c - where the daemon writes rows of a decode: pieces of host arenas of a connection.
 *
 * Each chunk has a reference to its arena beside the library's, so that rows can be read after the
 * connection's end. One empty chunk is kept, of the common size; what is larger or second goes back
 * to the daemon.
 */
#include "heap.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdlib.h>

#define ALIGN ((size_t)256)
#define CHUNK_BYTES ((size_t)2 << 20) /* what arenas are rounded up to */

struct heap_chunk {
	struct heap_chunk *next;
	struct coppice_arena *arena; /* a reference of ours */
	size_t bytes, used_bytes;
	unsigned n_pieces;
	bool abandoned;
};

static bool has_room(const struct heap_chunk *chunk, size_t bytes)
{
	return !chunk->abandoned && bytes <= chunk->bytes - chunk->used_bytes;
}

static int chunk_new(struct coppice *c, size_t bytes, struct heap_chunk **ret)
{
	struct heap_chunk *chunk = calloc(1, sizeof(*chunk));
	int r;

	if (!chunk)
		return -ENOMEM;
	Py_BEGIN_ALLOW_THREADS;
	r = coppice_arena_new(c, COPPICE_HOST, bytes, &chunk->arena);
	Py_END_ALLOW_THREADS;
	if (r < 0) {
		free(chunk);
		return r;
	}
	coppice_arena_ref(chunk->arena);
	chunk->bytes = coppice_arena_bytes(chunk->arena);
	*ret = chunk;
	return 0;
}

static int find_chunk(struct heap *heap, struct coppice *c, size_t bytes, struct heap_chunk **ret)
{
	struct heap_chunk *chunk = heap->chunks;
	int r;

	while (chunk && !has_room(chunk, bytes))
		chunk = chunk->next;
	if (!chunk) {
		r = chunk_new(c, max_u64(bytes, CHUNK_BYTES), &chunk);
		if (r < 0)
			return r;
		chunk->next = heap->chunks;
		heap->chunks = chunk;
	}
	*ret = chunk;
	return 0;
}

int heap_take(struct heap *heap, struct coppice *c, size_t bytes, struct heap_piece *ret)
{
	struct heap_chunk *chunk;
	int r;

	bytes = align_to(bytes, ALIGN);
	r = find_chunk(heap, c, bytes, &chunk);
	if (r < 0)
		return r;
	ret->chunk = chunk;
	ret->base = (uint8_t *)coppice_arena_base(chunk->arena) + chunk->used_bytes;
	ret->bytes = bytes;
	chunk->used_bytes += bytes;
	chunk->n_pieces++;
	return 0;
}

static void unlink_chunk(struct heap *heap, struct heap_chunk *chunk)
{
	struct heap_chunk **at = &heap->chunks;

	while (*at != chunk)
		at = &(*at)->next;
	*at = chunk->next;
}

static void retire(struct heap *heap, struct coppice *c, struct heap_chunk *chunk)
{
	unlink_chunk(heap, chunk);
	Py_BEGIN_ALLOW_THREADS;
	if (c)
		coppice_arena_free(chunk->arena);
	coppice_arena_unref(chunk->arena);
	Py_END_ALLOW_THREADS;
	free(chunk);
}

static bool has_other_empty(const struct heap *heap, const struct heap_chunk *but)
{
	const struct heap_chunk *chunk = heap->chunks;

	while (chunk && (chunk == but || chunk->n_pieces > 0 || chunk->abandoned))
		chunk = chunk->next;
	return chunk != NULL;
}

void heap_give(struct heap *heap, struct coppice *c, struct heap_piece *piece, bool abandoned)
{
	struct heap_chunk *chunk = piece->chunk;

	if (!chunk)
		return;
	piece->chunk = NULL;
	chunk->abandoned = chunk->abandoned || abandoned;
	if (--chunk->n_pieces > 0)
		return;
	chunk->used_bytes = 0;
	if (chunk->abandoned || chunk->bytes > CHUNK_BYTES || has_other_empty(heap, chunk))
		retire(heap, c, chunk);
}

void heap_done(struct heap *heap)
{
	while (heap->chunks)
		retire(heap, NULL, heap->chunks);
}
