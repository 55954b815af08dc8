/* grow.h - arrays that grow, and never shrink. */
#ifndef COPPICED_GROW_H
#define COPPICED_GROW_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* Room for n elements; 0 or -ENOMEM, the array as it was. */
#define GROW(array, room, n) grow_array((void **)&(array), &(room), (n), sizeof(*(array)))

static inline int grow_array(void **array, uint32_t *room, uint32_t n, size_t element_bytes)
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

#endif
