/*
 * ids.c - token ids are decimal numbers where the file holds nothing else but blanks, and 32-bit
 * words otherwise: a file of words that looks like digits by chance is rarer than either.
 */
#include "ids.h"

#include "client/model/file.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

int ids_read(const char *path, uint32_t **ret, uint32_t *ret_n, struct fault *fault)
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
