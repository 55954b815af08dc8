/*
 * array.h - memory that grows and never shrinks, for what is planned again at every step.
 */
#ifndef COPPICE_PLAN_ARRAY_H
#define COPPICE_PLAN_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

struct array {
	void *data; /* owned */
	size_t bytes;
};

/* The same as array_room where there is too little. */
void *array_grow(struct array *array, size_t n, size_t size);

/* Room for n things of size bytes, contents kept. The address, or NULL where memory is short (the
 * old array stays). Asked for each thing that is added: what is there is found at once. */
static inline void *array_room(struct array *array, size_t n, size_t size)
{
	size_t want;
	bool is_there = !__builtin_mul_overflow(n, size, &want) && want <= array->bytes;

	return is_there && array->data ? array->data : array_grow(array, n, size);
}

void array_done(struct array *array);

#endif
