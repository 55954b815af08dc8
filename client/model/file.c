/*
 * file.c - reads to the end rather than by the size that is said beforehand: a pipe has none, and a
 * file may grow meanwhile.
 */
#include "file.h"
#include "proto/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (256u << 20)

static int read_stream(const char *path, FILE *stream, char **ret, size_t *ret_bytes,
		       struct fault *fault)
{
	size_t n = 0, room = 0;
	CLEANUP_FREE char *bytes = NULL;
	do {
		room = room ? room * 2 : 16384;
		char *more = room <= FILE_BYTES_MAX ? realloc(bytes, room + 1) : NULL;
		if (!more)
			return fault_set(fault, -EFBIG, "%s: is larger than %u MiB", path,
					 FILE_BYTES_MAX >> 20);
		bytes = more;
		n += fread(bytes + n, 1, room - n, stream);
	} while (n == room);
	if (ferror(stream))
		return fault_set(fault, -EIO, "%s: cannot be read: %s", path, strerror(errno));
	bytes[n] = 0;
	*ret = bytes;
	bytes = NULL;
	*ret_bytes = n;
	return 0;
}

int file_read(const char *path, char **ret, size_t *ret_bytes, struct fault *fault)
{
	FILE *stream = fopen(path, "re");
	if (!stream)
		return fault_set(fault, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	int r = read_stream(path, stream, ret, ret_bytes, fault);
	fclose(stream);
	return r;
}
