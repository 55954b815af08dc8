/*
 * array.c - memory that grows and never shrinks: a plan is made again and again for trees of
 * about one size, and asks for nothing once it has seen the largest. What is there stays.
 */
#include "array.h"
#include "proto/arith.h"

#include <stdint.h>
#include <stdlib.h>

#define ARRAY_MIN_BYTES 256

void *array_grow(struct array *array, size_t n, size_t size)
{
	size_t bytes = max_u64(array->bytes, ARRAY_MIN_BYTES);
	size_t want;
	void *data;

	if (__builtin_mul_overflow(n, size, &want) || want > SIZE_MAX / 2)
		return NULL;
	while (bytes < want)
		bytes *= 2;
	data = realloc(array->data, bytes);
	if (!data)
		return NULL;
	array->data = data;
	array->bytes = bytes;
	return data;
}

void array_done(struct array *array)
{
	free(array->data);
	*array = (struct array){0};
}
