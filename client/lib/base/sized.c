/*
 * sized.c - the sizes that structs of the app's say they have.
 *
 * Nothing beyond what a struct says is ever touched, and nothing of it is passed over that is not
 * 0: a wish that this library does not know is refused, not forgotten.
 */
#include "sized.h"

#include "explain.h"
#include "proto/arith.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

static size_t size_of(const void *given)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	return size;
}

int sized_check(struct sized_caller caller, const void *given, size_t known_bytes)
{
	size_t size = size_of(given);

	if (size == 0 || size == known_bytes)
		return 0;
	if (size < known_bytes)
		return explain(caller.key, -EINVAL,
			       "%s: the struct's size says %zu, which it never had; set it to its "
			       "sizeof, or to 0",
			       caller.what, size);
	if (is_zero((const uint8_t *)given + known_bytes, size - known_bytes))
		return 0;
	return explain(caller.key, -E2BIG,
		       "%s: the struct says something in its last %zu bytes that this library (%s) "
		       "does not know; leave it 0, or install a newer library",
		       caller.what, size - known_bytes, COPPICE_VERSION);
}

int sized_fill(struct sized_caller caller, void *to, const void *from, size_t known_bytes)
{
	size_t size = size_of(to);
	size_t filled = min_u64(size, known_bytes);

	if (size < sizeof(size))
		return explain(caller.key, -EINVAL,
			       "%s: the struct's size is %zu; set it to its sizeof", caller.what,
			       size);
	memset(to, 0, size);
	memcpy(to, from, filled);
	memcpy(to, &size, sizeof(size));
	return 0;
}
