/*
 * safetensors.c - a file of others is mapped, and nothing in it believed: every length and offset
 * is checked against the mapping before it is used.
 *
 * Tensors are kept in the order of their data, so that overlaps and gaps show between neighbours.
 */
#include "safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES_MAX (100u << 20) /* the format's own limit */

/* What the checks share. */
struct reading {
	const char *path;
	struct safetensors *file;
	const char *data;
	uint64_t data_bytes;
	struct fault *fault;
};

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

static int map_file(const char *path, struct safetensors *file, struct fault *fault)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fault_set(fault, -errno, "%s: cannot be opened: %s", path, strerror(errno));
	struct stat st;
	int r = 0;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		r = fault_set(fault, -EINVAL, "%s: is not a regular file", path);
	} else if (st.st_size < 8) {
		r = fault_set(fault, -EINVAL,
			      "%s: %jd bytes are too few for a safetensors file (the header's "
			      "length takes 8)",
			      path, (intmax_t)st.st_size);
	} else {
		void *map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED)
			r = fault_set(fault, -errno, "%s: cannot be mapped: %s", path,
				      strerror(errno));
		else
			*file = (struct safetensors){.map = map, .map_bytes = st.st_size};
	}
	close(fd);
	return r;
}

static int header_length(const struct reading *in, uint64_t *ret)
{
	uint64_t n;
	memcpy(&n, in->file->map, sizeof(n));
	n = le64toh(n);
	if (n > HEADER_BYTES_MAX || n < 2)
		return fault_set(in->fault, -EINVAL,
				 "%s: a header of %" PRIu64
				 " bytes: this is not a safetensors file",
				 in->path, n);
	if (n > in->file->map_bytes - 8)
		return fault_set(in->fault, -EINVAL,
				 "%s: the header is cut off: it should have %" PRIu64
				 " bytes, the file has %zu after its length",
				 in->path, n, in->file->map_bytes - 8);
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
		values[i] = json_integer_value(item);
	}
	*ret_n = json_array_size(array);
	return 0;
}

static int check_extent(const struct reading *in, const struct safetensors_tensor *t)
{
	uint64_t bytes = dtype_bytes(t->dtype);
	for (uint32_t i = 0; i < t->n_dims; i++)
		if (__builtin_mul_overflow(bytes, t->dims[i], &bytes))
			return fault_set(in->fault, -EINVAL,
					 "%s: tensor %s: its shape is larger than any file",
					 in->path, t->name);
	if (t->begin > t->end || t->end > in->data_bytes)
		return fault_set(in->fault, -EINVAL,
				 "%s: tensor %s: bytes %" PRIu64 " to %" PRIu64
				 " are out of range: the data has %" PRIu64
				 " bytes (is the file cut off?)",
				 in->path, t->name, t->begin, t->end, in->data_bytes);
	if (t->end - t->begin != bytes)
		return fault_set(in->fault, -EINVAL,
				 "%s: tensor %s: shape and type need %" PRIu64
				 " bytes, its offsets span %" PRIu64,
				 in->path, t->name, bytes, t->end - t->begin);
	return 0;
}

static int read_tensor(const struct reading *in, const char *name, json_t *entry,
		       struct safetensors_tensor *t)
{
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	if (!dtype || !dtype_bytes(dtype))
		return fault_set(in->fault, -EINVAL, "%s: tensor %s: unknown dtype %s", in->path,
				 name, dtype ? dtype : "(none)");
	if (read_counts(json_object_get(entry, "shape"), t->dims, SAFETENSORS_MAX_DIMS, &t->n_dims))
		return fault_set(in->fault, -EINVAL,
				 "%s: tensor %s: shape is not a list of at most %d sizes", in->path,
				 name, SAFETENSORS_MAX_DIMS);
	uint64_t offsets[2];
	uint32_t n_offsets;
	if (read_counts(json_object_get(entry, "data_offsets"), offsets, 2, &n_offsets) ||
	    n_offsets != 2)
		return fault_set(in->fault, -EINVAL,
				 "%s: tensor %s: data_offsets is not a pair of offsets", in->path,
				 name);
	t->begin = offsets[0];
	t->end = offsets[1];
	t->data = in->data + t->begin;
	strcpy(t->dtype, dtype);
	t->name = strdup(name);
	if (!t->name)
		return fault_set(in->fault, -ENOMEM, "out of memory");
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
	struct safetensors *file = in->file;
	uint64_t end = 0;
	qsort(file->tensors, file->n_tensors, sizeof(*file->tensors), by_begin);
	for (uint32_t i = 0; i < file->n_tensors; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];
		if (t->begin < end)
			return fault_set(in->fault, -EINVAL, "%s: tensors %s and %s overlap",
					 in->path, file->tensors[i - 1].name, t->name);
		if (t->begin > end)
			return fault_set(in->fault, -EINVAL,
					 "%s: the %" PRIu64
					 " bytes before tensor %s belong to no tensor",
					 in->path, t->begin - end, t->name);
		end = t->end;
	}
	if (end != in->data_bytes)
		return fault_set(in->fault, -EINVAL,
				 "%s: the last %" PRIu64 " bytes belong to no tensor", in->path,
				 in->data_bytes - end);
	return 0;
}

static int read_header(const struct reading *in, json_t *header)
{
	struct safetensors *file = in->file;
	file->tensors = calloc(json_object_size(header) + 1, sizeof(*file->tensors));
	if (!file->tensors)
		return fault_set(in->fault, -ENOMEM, "out of memory");
	const char *name;
	json_t *entry;
	json_object_foreach(header, name, entry)
	{
		if (!strcmp(name, "__metadata__"))
			continue;
		int r = read_tensor(in, name, entry, &file->tensors[file->n_tensors++]);
		if (r < 0)
			return r;
	}
	return check_tiling(in);
}

static int read_all(struct reading *in)
{
	uint64_t n = 0;
	int r = header_length(in, &n);
	if (r < 0)
		return r;
	in->data = (const char *)in->file->map + 8 + n;
	in->data_bytes = in->file->map_bytes - 8 - n;
	json_error_t error;
	json_t *header =
		json_loadb((const char *)in->file->map + 8, n, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(header))
		r = fault_set(in->fault, -EINVAL, "%s: the header is not a JSON object: %s",
			      in->path, header ? "it is another kind of value" : error.text);
	else
		r = read_header(in, header);
	json_decref(header);
	return r;
}

int safetensors_open(const char *path, struct safetensors *ret, struct fault *fault)
{
	struct safetensors file = {0};
	int r = map_file(path, &file, fault);
	if (r < 0)
		return r;
	r = read_all(&(struct reading){.path = path, .file = &file, .fault = fault});
	if (r < 0)
		safetensors_close(&file);
	else
		*ret = file;
	return r;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name)
{
	for (uint32_t i = 0; i < file->n_tensors; i++)
		if (!strcmp(file->tensors[i].name, name))
			return &file->tensors[i];
	return NULL;
}

void safetensors_close(struct safetensors *file)
{
	for (uint32_t i = 0; i < file->n_tensors; i++)
		free(file->tensors[i].name);
	free(file->tensors);
	if (file->map)
		munmap(file->map, file->map_bytes);
	*file = (struct safetensors){0};
}
