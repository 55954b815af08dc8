/*
 * carve.h - one block of memory for many arrays, which are carved out of it one after the other.
 *
 * First without a block, which counts the bytes that it must have; then with one.
 */
#ifndef COPPICE_PROGRAM_CARVE_H
#define COPPICE_PROGRAM_CARVE_H

#include "proto/arith.h"

#include <stddef.h>

struct carving {
	char *block; /* borrowed; NULL: only counted */
	uint64_t bytes;
	uint32_t align; /* arrays begin at multiples of it, a power of two */
};

/* n x size bytes; NULL: there is no block. */
static inline void *carve(struct carving *c, uint64_t n, size_t size)
{
	uint64_t at = c->bytes;

	c->bytes = align_to(at + n * size, c->align);
	return c->block ? c->block + at : NULL;
}

#endif
