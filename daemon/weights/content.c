/*
 * content.c - tensors of several files in one order, that of their names, so that the same tensors
 * have the same digest whichever files they are in. Who compares digests is weights.c.
 */
#include "content.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static bool dtype_of(const char *name, enum work_dtype *ret)
{
	static const char *const names[] = {
		[WORK_FP32] = "F32", [WORK_FP16] = "F16", [WORK_BF16] = "BF16"};

	for (int i = 0; i < 3; i++) {
		*ret = (enum work_dtype)i;
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

#define NAME_BYTES_MAX 255u
/* Beside its name: what is known of it, and what the heap takes for a name. */
#define TENSOR_BYTES (sizeof(struct program_tensor) + sizeof(struct weights_digest) + 32u)

/* A matrix or a vector of a type that programs take, with a name that fits a message. */
static bool is_of_use(const struct safetensors_tensor *t, struct program_tensor *ret)
{
	uint64_t n_in = t->n_dims ? t->dims[t->n_dims - 1] : 0;
	uint64_t n_out = t->n_dims == 2 ? t->dims[0] : 0;

	*ret = (struct program_tensor){.n_out = (uint32_t)n_out, .n_in = (uint32_t)n_in};
	return strlen(t->name) <= NAME_BYTES_MAX && dtype_of(t->dtype, &ret->dtype) &&
	       (t->n_dims == 1 || t->n_dims == 2) && n_in > 0 && n_in <= UINT32_MAX &&
	       n_out <= UINT32_MAX && (t->n_dims == 1 || n_out > 0);
}

/* Where a tensor of the content comes from. */
struct origin {
	struct program_tensor tensor;
	uint32_t *number; /* where its number goes */
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct origin *)a)->tensor.name,
		      ((const struct origin *)b)->tensor.name);
}

static uint32_t collect(struct part *parts, uint32_t n_parts, struct origin *origins)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < n_parts; p++) {
		struct part *part = &parts[p];

		for (uint32_t i = 0; i < part->header.n_tensors; i++) {
			part->numbers[i] = PROGRAM_NONE;
			if (!is_of_use(&part->header.tensors[i], &origins[n].tensor))
				continue;
			origins[n].tensor.name = part->header.tensors[i].name;
			origins[n++].number = &part->numbers[i];
		}
	}
	qsort(origins, n, sizeof(*origins), by_name);
	return n;
}

static int add_tensor(struct weights_content *c, const struct origin *origin)
{
	struct program_tensor *t = &c->tensors[c->n_tensors];

	*t = origin->tensor;
	t->name = strdup(t->name);
	if (!t->name)
		return -ENOMEM;
	*origin->number = c->n_tensors++;
	return 0;
}

/* In order of names. */
static int add_all(struct weights_content *c, const struct origin *origins, uint32_t n,
		   char why[WEIGHTS_WHY_BYTES])
{
	int r = 0;

	for (uint32_t i = 0; i < n && !r; i++) {
		if (i > 0 && by_name(&origins[i - 1], &origins[i]) == 0) {
			snprintf(why, WEIGHTS_WHY_BYTES, "Two files have a tensor %s.",
				 origins[i].tensor.name);
			return -EINVAL;
		}
		r = add_tensor(c, &origins[i]);
	}
	return r;
}

/* A name as it is ordered by in memory: what a product takes together, q, k and v of one kind, lies
 * side by side. */
static void place_key(const char *name, char ret[NAME_BYTES_MAX + 8])
{
	static const char *const together[] = {"q_proj", "k_proj", "v_proj"};
	const char *at;

	snprintf(ret, NAME_BYTES_MAX + 8, "%s", name);
	for (size_t i = 0; i < sizeof(together) / sizeof(together[0]); i++) {
		at = strstr(name, together[i]);
		if (at)
			snprintf(ret, NAME_BYTES_MAX + 8, "%.*sqkv%s%zu", (int)(at - name), name,
				 at + strlen(together[i]), i);
	}
}

static int by_place(const void *a, const void *b)
{
	char x[NAME_BYTES_MAX + 8], y[NAME_BYTES_MAX + 8];

	place_key((*(const struct program_tensor *const *)a)->name, x);
	place_key((*(const struct program_tensor *const *)b)->name, y);
	return strcmp(x, y);
}

/* Each aligned. */
static int place(struct weights_content *c, uint64_t *ret_bytes)
{
	struct program_tensor **tensors = calloc(c->n_tensors + 1, sizeof(*tensors));
	uint64_t at = 0;

	if (!tensors)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n_tensors; i++)
		tensors[i] = &c->tensors[i];
	qsort(tensors, c->n_tensors, sizeof(*tensors), by_place);
	for (uint32_t i = 0; i < c->n_tensors; i++) {
		tensors[i]->offset = at;
		at += (program_tensor_bytes(tensors[i]) + PROGRAM_ALIGN - 1) / PROGRAM_ALIGN *
		      PROGRAM_ALIGN;
	}
	free(tensors);
	*ret_bytes = at;
	return 0;
}

static uint32_t count_tensors(const struct part *parts, uint32_t n_parts)
{
	uint32_t n = 0;

	for (uint32_t p = 0; p < n_parts; p++)
		n += parts[p].header.n_tensors;
	return n;
}

uint64_t content_names_bytes(const struct safetensors_header *header)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < header->n_tensors; i++)
		bytes += strlen(header->tensors[i].name) + TENSOR_BYTES;
	return bytes;
}

int content_make(struct weights_content *content, struct part *parts, uint32_t n_parts,
		 uint64_t *ret_bytes, char why[WEIGHTS_WHY_BYTES])
{
	uint32_t n = count_tensors(parts, n_parts);
	struct origin *origins = calloc(n + 1, sizeof(*origins));
	int r = -ENOMEM;

	snprintf(why, WEIGHTS_WHY_BYTES, "There is no memory for the names of %u tensors.", n);
	content->tensors = calloc(n + 1, sizeof(*content->tensors));
	content->digests = calloc(n + 1, sizeof(*content->digests));
	if (origins && content->tensors && content->digests) {
		n = collect(parts, n_parts, origins);
		r = n ? add_all(content, origins, n, why) : -EINVAL;
		r = r ? r : place(content, ret_bytes);
		if (n == 0)
			snprintf(why, WEIGHTS_WHY_BYTES,
				 "No file has a tensor of F32, F16 or BF16.");
	}
	free(origins);
	return r;
}

void content_digest(struct weights_content *content)
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical,
				 XXH3_128bits(content->digests,
					      content->n_tensors * sizeof(*content->digests)));
	memcpy(&content->digest, &canonical, sizeof(canonical));
}

void content_done(struct weights_content *content)
{
	for (uint32_t i = 0; i < content->n_tensors; i++)
		free((char *)content->tensors[i].name);
	free(content->tensors);
	free(content->digests);
	content->tensors = NULL;
	content->digests = NULL;
	content->n_tensors = 0;
}
