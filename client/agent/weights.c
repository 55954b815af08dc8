/*
 * weights.c - one file or several shards, in which a tensor is found by its name.
 *
 * The hash runs over every byte of every file in the order in which they were opened, so that two
 * models share KV only where their weights are the same.
 */
#include "weights.h"

#include "weight_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static int add_file(struct weights *weights, const char *path, struct fault *fault)
{
	struct safetensors *files =
		realloc(weights->files, (weights->n_files + 1) * sizeof(*files));
	if (!files)
		return fault_set(fault, -ENOMEM, "out of memory");
	weights->files = files;
	files[weights->n_files] = (struct safetensors){0};
	int r = safetensors_open(path, &files[weights->n_files], fault);
	if (r == 0)
		weights->n_files++;
	return r;
}

int weights_open(const char *dir, struct weights *ret, struct fault *fault)
{
	struct weight_files files;
	struct weights weights = {0};
	int r = weight_files_find(dir, &files, fault);
	if (r < 0)
		return r;
	for (uint32_t i = 0; r == 0 && i < files.n; i++)
		r = add_file(&weights, files.paths[i], fault);
	weight_files_done(&files);
	if (r < 0)
		weights_close(&weights);
	else
		*ret = weights;
	return r;
}

static const struct safetensors_tensor *find(const struct weights *weights, const char *name,
					     const char **ret_data)
{
	for (uint32_t i = 0; i < weights->n_files; i++) {
		const struct safetensors_tensor *t = safetensors_find(&weights->files[i], name);
		if (!t)
			continue;
		*ret_data = weights->files[i].data + t->begin;
		return t;
	}
	return NULL;
}

MUST_CHECK static int dtype_of(const char *name, enum work_dtype *ret)
{
	if (!strcmp(name, "F32"))
		*ret = WORK_FP32;
	else if (!strcmp(name, "F16"))
		*ret = WORK_FP16;
	else if (!strcmp(name, "BF16"))
		*ret = WORK_BF16;
	else
		return -EINVAL;
	return 0;
}

static void shape_text(const struct safetensors_tensor *t, char *text, size_t bytes)
{
	size_t at = 0;
	text[0] = 0;
	for (uint32_t i = 0; i < t->n_dims && at < bytes; i++)
		at += snprintf(text + at, bytes - at, "%s%" PRIu64, i ? ", " : "", t->dims[i]);
}

static bool has_shape(const struct safetensors_tensor *t, struct weights_shape shape)
{
	if (shape.n_out == 0)
		return t->n_dims == 1 && t->dims[0] == shape.n_in;
	return t->n_dims == 2 && t->dims[0] == shape.n_out && t->dims[1] == shape.n_in;
}

static int fail_shape(const struct safetensors_tensor *t, struct weights_shape shape,
		      struct fault *fault)
{
	const struct safetensors_tensor wanted = {
		.n_dims = shape.n_out ? 2 : 1,
		.dims = {shape.n_out ? shape.n_out : shape.n_in, shape.n_in},
	};
	char has[128], wants[48];
	shape_text(t, has, sizeof(has));
	shape_text(&wanted, wants, sizeof(wants));
	return fault_set(fault, -EINVAL, "tensor %s has the shape [%s], config.json makes it [%s]",
			 t->name, has, wants);
}

int weights_matrix(const struct weights *weights, const char *name, struct weights_shape shape,
		   struct rows_matrix *ret, struct fault *fault)
{
	const char *data = NULL;
	const struct safetensors_tensor *t = find(weights, name, &data);
	enum work_dtype dtype;
	if (!t)
		return fault_set(fault, -EINVAL, "the weights have no tensor %s", name);
	if (!has_shape(t, shape))
		return fail_shape(t, shape, fault);
	if (dtype_of(t->dtype, &dtype))
		return fault_set(fault, -EINVAL, "tensor %s is %s; F32, F16 and BF16 are supported",
				 name, t->dtype);
	*ret = (struct rows_matrix){
		.data = data,
		.dtype = dtype,
		.n_out = shape.n_out ? shape.n_out : 1,
		.n_in = shape.n_in,
	};
	return 0;
}

uint64_t weights_bytes(const struct weights *weights)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < weights->n_files; i++)
		bytes += weights->files[i].map_bytes;
	return bytes;
}

uint64_t weights_hash(const struct weights *weights, uint64_t seed)
{
	for (uint32_t i = 0; i < weights->n_files; i++)
		seed = XXH3_64bits_withSeed(weights->files[i].map, weights->files[i].map_bytes,
					    seed);
	return seed;
}

void weights_close(struct weights *weights)
{
	for (uint32_t i = 0; i < weights->n_files; i++)
		safetensors_close(&weights->files[i]);
	free(weights->files);
	*weights = (struct weights){0};
}
