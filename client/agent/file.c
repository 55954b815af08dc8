/*
 * file.c - reads to the end rather than by the size that is said beforehand: a pipe has none, and a
 * file may grow meanwhile.
 */
#include "file.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (256u << 20)

static int read_stream(const char *path, FILE *stream, char **ret, size_t *ret_bytes,
		       struct fault *fault)
{
	size_t n = 0, room = 0;
	char *bytes = NULL; /* owned */
	do {
		room = room ? room * 2 : 16384;
		char *more = room <= FILE_BYTES_MAX ? realloc(bytes, room + 1) : NULL;
		if (!more) {
			free(bytes);
			return fault_set(fault, -EFBIG, "%s: is larger than %u MiB", path,
					 FILE_BYTES_MAX >> 20);
		}
		bytes = more;
		n += fread(bytes + n, 1, room - n, stream);
	} while (n == room);
	if (ferror(stream)) {
		free(bytes);
		return fault_set(fault, -EIO, "%s: cannot be read: %s", path, strerror(errno));
	}
	bytes[n] = 0;
	*ret = bytes;
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

static int parse_decimal(const char *path, const char *text, uint32_t *ids, uint32_t *ret_n,
			 struct fault *fault)
{
	uint32_t n = 0;
	for (;;) {
		text += strspn(text, " \t\r\n");
		if (!*text)
			break;
		char *end;
		errno = 0;
		unsigned long long id = strtoull(text, &end, 10);
		if (errno || id > UINT32_MAX)
			return fault_set(fault, -EINVAL, "%s: id %u is too large", path, n);
		ids[n++] = id;
		text = end;
	}
	*ret_n = n;
	return 0;
}

int file_read_ids(const char *path, uint32_t **ret, uint32_t *ret_n, struct fault *fault)
{
	char *text;
	size_t bytes;
	int r = file_read(path, &text, &bytes, fault);
	if (r < 0)
		return r;
	const bool decimal = strspn(text, "0123456789 \t\r\n") == bytes;
	uint32_t n = bytes / 4, *ids = calloc(bytes + 1, sizeof(*ids));
	if (!ids)
		r = fault_set(fault, -ENOMEM, "out of memory");
	else if (decimal)
		r = parse_decimal(path, text, ids, &n, fault);
	else if (bytes % 4)
		r = fault_set(fault, -EINVAL,
			      "%s: holds neither decimal ids nor 32-bit words (%zu bytes)", path,
			      bytes);
	else
		for (uint32_t i = 0; i < n; i++) {
			memcpy(&ids[i], text + 4 * (size_t)i, 4);
			ids[i] = le32toh(ids[i]);
		}
	free(text);
	if (r < 0) {
		free(ids);
		return r;
	}
	*ret = ids;
	*ret_n = n;
	return 0;
}
