/*
 * safetensors_header.c - nothing in a header of others is believed: every length and offset is
 * checked against the file's before it is used.
 *
 * The text is walked tensor by tensor, and JSON is parsed of one at a time, of a few KiB at most: a
 * tree of it all would take a hundred bytes of heap for each of an evil header's. What is kept are
 * two large pieces, names and tensors, which go back to the system when they are freed. Each name
 * takes one byte more there than it has in the text without its quotes, which are two.
 *
 * Tensors are kept in the order of their data, so that overlaps and gaps show between neighbours.
 */
#include "safetensors_header.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the checks share. */
struct reading {
	struct safetensors_header *header;
	uint64_t data_bytes;
	char *why;
	char *name; /* of header->names: where the next goes */
	bool has_metadata;
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

static int read_tensor(struct reading *in, const char *name, json_t *entry)
{
	struct safetensors_header *header = in->header;
	struct safetensors_tensor *t = &header->tensors[header->n_tensors];
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	uint64_t offsets[2];
	uint32_t n_offsets;

	*t = (struct safetensors_tensor){0};
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
	t->name = in->name;
	in->name = stpcpy(in->name, name) + 1;
	header->n_tensors++;
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

/* ---- the text ------------------------------------------------------------------------------- */

struct text {
	const char *at, *end;
};

static int malformed(const struct reading *in, const char *how)
{
	return fail(in->why, -EINVAL, "the header is not a JSON object: %s", how);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_space(struct text *t)
{
	while (t->at < t->end && is_space(*t->at))
		t->at++;
}

static bool take(struct text *t, char c)
{
	skip_space(t);
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

static bool skip_string(struct text *t)
{
	if (!take(t, '"'))
		return false;
	while (t->at < t->end) {
		char c = *t->at++;

		if (c == '"')
			return true;
		if (c == '\\' && t->at < t->end)
			t->at++;
	}
	return false;
}

/* To what ends it: a comma, or its object's end. What it is nobody has looked at. */
static bool skip_value(struct text *t)
{
	uint64_t depth = 0;

	while (t->at < t->end) {
		char c = *t->at;
		bool closes = c == '}' || c == ']';

		if (depth == 0 && (closes || c == ','))
			return true;
		if (c == '"') {
			if (!skip_string(t))
				return false;
			continue;
		}
		depth += c == '{' || c == '[';
		depth -= closes;
		t->at++;
	}
	return false;
}

typedef int (*member_reader)(struct reading *in, struct text name, struct text value);

static int read_member(struct reading *in, struct text *t, member_reader read)
{
	struct text name, value;

	skip_space(t);
	name.at = t->at;
	if (!skip_string(t))
		return malformed(in, "a name is expected");
	name.end = t->at;
	if (!take(t, ':'))
		return malformed(in, "':' is expected behind a name");
	skip_space(t);
	value.at = t->at;
	if (!skip_value(t))
		return malformed(in, "it ends within a value");
	value.end = t->at;
	while (value.end > value.at && is_space(value.end[-1]))
		value.end--;
	return read(in, name, value);
}

/* Of an object, one after the other. */
static int each_member(struct reading *in, struct text t, member_reader read)
{
	int r = 0;

	if (!take(&t, '{'))
		return malformed(in, "it is another kind of value");
	if (!take(&t, '}')) {
		do
			r = read_member(in, &t, read);
		while (r == 0 && take(&t, ','));
		if (r == 0 && !take(&t, '}'))
			r = malformed(in, "'}' is expected");
	}
	skip_space(&t);
	if (r == 0 && t.at < t.end)
		r = malformed(in, "something is behind its end");
	return r;
}

/* *ret: the caller's. */
static int parse(const struct reading *in, struct text t, json_t **ret)
{
	json_error_t error;
	json_t *value = json_loadb(t.at, (size_t)(t.end - t.at),
				   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);

	if (!value)
		return malformed(in, error.text);
	*ret = value;
	return 0;
}

/* ---- what it says --------------------------------------------------------------------------- */

static int check_string(struct reading *in, struct text name, struct text value)
{
	json_auto_t *parsed_name = NULL, *parsed = NULL;

	if (value.at == value.end || *value.at != '"')
		return fail(in->why, -EINVAL, "__metadata__ has a value that is not a string");
	if (parse(in, name, &parsed_name))
		return -EINVAL;
	return parse(in, value, &parsed);
}

static int read_metadata(struct reading *in, struct text value)
{
	if (in->has_metadata)
		return malformed(in, "duplicate __metadata__");
	in->has_metadata = true;
	if (value.at == value.end || *value.at != '{')
		return fail(in->why, -EINVAL, "__metadata__ is not an object");
	return each_member(in, value, check_string);
}

/* Twice as many as there are, where those are a power of two. */
static int make_room(const struct reading *in)
{
	struct safetensors_header *header = in->header;
	size_t n = header->n_tensors;
	struct safetensors_tensor *tensors;

	if (n & (n - 1))
		return 0;
	tensors = reallocarray(header->tensors, n ? 2 * n : 1, sizeof(*tensors));
	if (!tensors)
		return fail(in->why, -ENOMEM, "out of memory");
	header->tensors = tensors;
	return 0;
}

static int read_entry(struct reading *in, struct text name, struct text value)
{
	json_auto_t *parsed_name = NULL, *entry = NULL;
	const char *of;
	int r = parse(in, name, &parsed_name);

	if (r < 0)
		return r;
	of = json_string_value(parsed_name);
	if (!strcmp(of, "__metadata__"))
		return read_metadata(in, value);
	if (value.end - value.at > SAFETENSORS_ENTRY_BYTES_MAX)
		return fail(in->why, -EINVAL, "tensor %s: more than %d bytes about it", of,
			    SAFETENSORS_ENTRY_BYTES_MAX);
	r = parse(in, value, &entry);
	if (r == 0)
		r = make_room(in);
	return r < 0 ? r : read_tensor(in, of, entry);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct reading *in)
{
	uint32_t n = in->header->n_tensors;
	const char **names = calloc(n + 1, sizeof(*names));
	int r = 0;

	if (!names)
		return fail(in->why, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		names[i] = in->header->tensors[i].name;
	qsort(names, n, sizeof(*names), by_name);
	for (uint32_t i = 1; i < n && r == 0; i++)
		if (!strcmp(names[i - 1], names[i]))
			r = fail(in->why, -EINVAL, "there is a duplicate of tensor %s", names[i]);
	free(names);
	return r;
}

int safetensors_header_parse(const char *json, size_t n, uint64_t data_bytes,
			     struct safetensors_header *ret, char why[SAFETENSORS_WHY_BYTES])
{
	struct safetensors_header header = {.names = malloc(n + 1)};
	struct reading in = {.header = &header, .data_bytes = data_bytes, .why = why};
	int r;

	if (!header.names)
		return fail(why, -ENOMEM, "out of memory");
	in.name = header.names;
	r = make_room(&in);
	if (r == 0)
		r = each_member(&in, (struct text){json, json + n}, read_entry);
	if (r == 0)
		r = check_names(&in);
	if (r == 0)
		r = check_tiling(&in);
	if (r < 0)
		safetensors_header_done(&header);
	else
		*ret = header;
	return r;
}

void safetensors_header_done(struct safetensors_header *header)
{
	free(header->names);
	free(header->tensors);
	*header = (struct safetensors_header){0};
}
