/*
 * array.h - memory that grows and never shrinks, for what is planned again at every step.
 */
#ifndef COPPICE_PLAN_ARRAY_H
#define COPPICE_PLAN_ARRAY_H

#include <stddef.h>

struct array {
	void *data; /* owned */
	size_t bytes;
};

/* Room for n things of size bytes, contents kept. The address, or NULL where memory is short (the
 * old array stays). */
void *array_room(struct array *array, size_t n, size_t size);

void array_done(struct array *array);

#endif
