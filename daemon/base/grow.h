/* grow.h - arrays that grow, and never shrink. */
#ifndef COPPICED_GROW_H
#define COPPICED_GROW_H

#include "proto/must_check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Room for n elements; 0 or -ENOMEM, the array as it was. */
#define GROW(array, room, n) grow_array((void **)&(array), &(room), (n), sizeof(*(array)))

MUST_CHECK static inline int grow_array(void **array, uint32_t *room, uint32_t n,
					size_t element_bytes)
{
	if (n <= *room)
		return 0;
	uint32_t want = n + n / 2 + 16;
	void *grown = realloc(*array, want * element_bytes);

	if (!grown)
		return -ENOMEM;
	*array = grown;
	*room = want;
	return 0;
}

/* The same; elements that are new are all zero. */
#define GROW_ZEROED(array, room, n) grow_zeroed((void **)&(array), &(room), (n), sizeof(*(array)))

MUST_CHECK static inline int grow_zeroed(void **array, uint32_t *room, uint32_t n,
					 size_t element_bytes)
{
	uint32_t had = *room;

	if (grow_array(array, room, n, element_bytes) < 0)
		return -ENOMEM;
	memset((char *)*array + had * element_bytes, 0, (*room - had) * element_bytes);
	return 0;
}

#endif
