/*
 * content.c - tensors of several files in one order, that of their names, so that the same tensors
 * have the same digest whichever files they are in. Who compares digests is weights.c.
 */
#include "content.h"

#include "proto/arith.h"
#include "proto/cleanup.h"

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

/* A tensor, and its name as it is ordered by in memory. */
struct placed {
	struct program_tensor *tensor;
	const char *key;
};

/* What a product takes together, q, k and v of one kind, lies side by side. No longer than the
 * name; returns its end. */
static char *place_key(const char *name, char *ret)
{
	static const char *const together[] = {"q_proj", "k_proj", "v_proj"};
	int n = sprintf(ret, "%s", name);

	for (size_t i = 0; i < sizeof(together) / sizeof(together[0]); i++) {
		const char *at = strstr(name, together[i]);

		if (at)
			n = sprintf(ret, "%.*sqkv%s%zu", (int)(at - name), name,
				    at + strlen(together[i]), i);
	}
	return ret + n + 1;
}

static int by_place(const void *a, const void *b)
{
	return strcmp(((const struct placed *)a)->key, ((const struct placed *)b)->key);
}

/* In the order of their keys, which are made once. */
static void sort(struct weights_content *c, struct placed *placed, char *keys)
{
	for (uint32_t i = 0; i < c->n_tensors; i++) {
		placed[i] = (struct placed){&c->tensors[i], keys};
		keys = place_key(c->tensors[i].name, keys);
	}
	qsort(placed, c->n_tensors, sizeof(*placed), by_place);
}

static size_t keys_bytes(const struct weights_content *c)
{
	size_t bytes = 1;

	for (uint32_t i = 0; i < c->n_tensors; i++)
		bytes += strlen(c->tensors[i].name) + 1;
	return bytes;
}

/* Each aligned. Returns where the last one ends. */
static uint64_t set_offsets(struct placed *placed, uint32_t n)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		placed[i].tensor->offset = at;
		at += align_to(program_tensor_bytes(placed[i].tensor), PROGRAM_ALIGN);
	}
	return at;
}

static int place(struct weights_content *c, uint64_t *ret_bytes)
{
	CLEANUP_FREE struct placed *placed = calloc(c->n_tensors + 1, sizeof(*placed));
	CLEANUP_FREE char *keys = malloc(keys_bytes(c));

	if (!placed || !keys)
		return -ENOMEM;
	sort(c, placed, keys);
	*ret_bytes = set_offsets(placed, c->n_tensors);
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
	CLEANUP_FREE struct origin *origins = calloc(n + 1, sizeof(*origins));
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
