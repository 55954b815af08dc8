/*
 * safetensors_header.c - nothing in a header of others is believed: every length and offset is
 * checked against the file's before it is used.
 *
 * Tensors are kept in the order of their data, so that overlaps and gaps show between neighbours.
 */
#include "safetensors_header.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the checks share. */
struct reading {
	struct safetensors_header *header;
	uint64_t data_bytes;
	char *why;
};

__attribute__((format(printf, 3, 4))) static int fail(char *why, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, SAFETENSORS_WHY_BYTES, format, args);
	va_end(args);
	return error;
}

static uint32_t dtype_bytes(const char *dtype)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} known[] = {
		{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
		{"U64", 8}, {"I32", 4}, {"U32", 4},  {"I16", 2},     {"U16", 2},
		{"I8", 1},  {"U8", 1},	{"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, dtype))
			return known[i].bytes;
	return 0;
}

int safetensors_header_length(const uint8_t *first, uint64_t file_bytes, uint64_t *ret,
			      char why[SAFETENSORS_WHY_BYTES])
{
	uint64_t n;

	memcpy(&n, first, sizeof(n));
	n = le64toh(n);
	if (n > SAFETENSORS_HEADER_BYTES_MAX || n < 2)
		return fail(why, -EINVAL,
			    "a header of %" PRIu64 " bytes: this is not a safetensors file", n);
	if (n > file_bytes - SAFETENSORS_LENGTH_BYTES)
		return fail(why, -EINVAL,
			    "the header is cut off: it should have %" PRIu64
			    " bytes, the file has %" PRIu64 " after its length",
			    n, file_bytes - SAFETENSORS_LENGTH_BYTES);
	*ret = n;
	return 0;
}

/* Reads an array of integers >= 0; -EINVAL when it is anything else. */
static int read_counts(const json_t *array, uint64_t *values, size_t max, uint32_t *ret_n)
{
	if (!json_is_array(array) || json_array_size(array) > max)
		return -EINVAL;
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *item = json_array_get(array, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0)
			return -EINVAL;
		values[i] = (uint64_t)json_integer_value(item);
	}
	*ret_n = (uint32_t)json_array_size(array);
	return 0;
}

static int check_extent(const struct reading *in, const struct safetensors_tensor *t)
{
	uint64_t bytes = dtype_bytes(t->dtype);

	for (uint32_t i = 0; i < t->n_dims; i++)
		if (__builtin_mul_overflow(bytes, t->dims[i], &bytes))
			return fail(in->why, -EINVAL,
				    "tensor %s: its shape is larger than any file", t->name);
	if (t->begin > t->end || t->end > in->data_bytes)
		return fail(in->why, -EINVAL,
			    "tensor %s: bytes %" PRIu64 " to %" PRIu64
			    " are out of range: the data has %" PRIu64
			    " bytes (is the file cut off?)",
			    t->name, t->begin, t->end, in->data_bytes);
	if (t->end - t->begin != bytes)
		return fail(in->why, -EINVAL,
			    "tensor %s: shape and type need %" PRIu64
			    " bytes, its offsets span %" PRIu64,
			    t->name, bytes, t->end - t->begin);
	return 0;
}

static int read_tensor(const struct reading *in, const char *name, json_t *entry,
		       struct safetensors_tensor *t)
{
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	uint64_t offsets[2];
	uint32_t n_offsets;

	if (!dtype || !dtype_bytes(dtype))
		return fail(in->why, -EINVAL, "tensor %s: unknown dtype %s", name,
			    dtype ? dtype : "(none)");
	if (read_counts(json_object_get(entry, "shape"), t->dims, SAFETENSORS_MAX_DIMS, &t->n_dims))
		return fail(in->why, -EINVAL, "tensor %s: shape is not a list of at most %d sizes",
			    name, SAFETENSORS_MAX_DIMS);
	if (read_counts(json_object_get(entry, "data_offsets"), offsets, 2, &n_offsets) ||
	    n_offsets != 2)
		return fail(in->why, -EINVAL, "tensor %s: data_offsets is not a pair of offsets",
			    name);
	t->begin = offsets[0];
	t->end = offsets[1];
	strcpy(t->dtype, dtype);
	t->name = strdup(name);
	if (!t->name)
		return fail(in->why, -ENOMEM, "out of memory");
	return check_extent(in, t);
}

static int by_begin(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->end < y->end ? -1 : x->end > y->end;
}

/* Every byte of the data belongs to exactly one tensor. */
static int check_tiling(const struct reading *in)
{
	struct safetensors_header *header = in->header;
	uint64_t end = 0;

	qsort(header->tensors, header->n_tensors, sizeof(*header->tensors), by_begin);
	for (uint32_t i = 0; i < header->n_tensors; i++) {
		const struct safetensors_tensor *t = &header->tensors[i];

		if (t->begin < end)
			return fail(in->why, -EINVAL, "tensors %s and %s overlap",
				    header->tensors[i - 1].name, t->name);
		if (t->begin > end)
			return fail(in->why, -EINVAL,
				    "the %" PRIu64 " bytes before tensor %s belong to no tensor",
				    t->begin - end, t->name);
		end = t->end;
	}
	if (end != in->data_bytes)
		return fail(in->why, -EINVAL, "the last %" PRIu64 " bytes belong to no tensor",
			    in->data_bytes - end);
	return 0;
}

static int read_header(const struct reading *in, json_t *root)
{
	struct safetensors_header *header = in->header;
	const char *name;
	json_t *entry;

	header->tensors = calloc(json_object_size(root) + 1, sizeof(*header->tensors));
	if (!header->tensors)
		return fail(in->why, -ENOMEM, "out of memory");
	json_object_foreach(root, name, entry)
	{
		if (!strcmp(name, "__metadata__"))
			continue;
		int r = read_tensor(in, name, entry, &header->tensors[header->n_tensors++]);

		if (r < 0)
			return r;
	}
	return check_tiling(in);
}

int safetensors_header_parse(const char *json, size_t n, uint64_t data_bytes,
			     struct safetensors_header *ret, char why[SAFETENSORS_WHY_BYTES])
{
	struct safetensors_header header = {0};
	json_error_t error;
	json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &error);
	int r;

	if (json_is_object(root))
		r = read_header(&(struct reading){&header, data_bytes, why}, root);
	else
		r = fail(why, -EINVAL, "the header is not a JSON object: %s",
			 root ? "it is another kind of value" : error.text);
	json_decref(root);
	if (r < 0)
		safetensors_header_done(&header);
	else
		*ret = header;
	return r;
}

void safetensors_header_done(struct safetensors_header *header)
{
	for (uint32_t i = 0; i < header->n_tensors; i++)
		free(header->tensors[i].name);
	free(header->tensors);
	*header = (struct safetensors_header){0};
}
