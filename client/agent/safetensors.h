/*
 * safetensors.h - a mapped .safetensors file: named tensors, none of them trusted.
 *
 *      0        8                    8 + n                                  end
 *      | n: u64 | JSON of n bytes    | data: tensor after tensor, no gaps   |
 *                 {"name": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [begin, end]}, ...}
 *
 * Everything is checked at opening: lengths, JSON, element types, that shape and offsets agree, and
 * that the tensors tile the data exactly (no overlap, no gap, nothing beyond the end). After that
 * tensor->data is safe to read whole.
 */
#ifndef AGENT_SAFETENSORS_H
#define AGENT_SAFETENSORS_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_MAX_DIMS 8

struct safetensors_tensor {
	char *name; /* owned */
	char dtype[12]; /* as the file names it: F32, F16, BF16, I64, ... */
	uint32_t n_dims;
	uint64_t dims[SAFETENSORS_MAX_DIMS];
	const void *data; /* in the mapping; any alignment */
	uint64_t begin, end; /* bytes from the start of the data */
};

struct safetensors {
	void *map; /* owned mapping of the whole file */
	size_t map_bytes;
	struct safetensors_tensor *tensors; /* owned, ascending by begin */
	uint32_t n_tensors;
};

/* Maps and checks the file. 0, or -errno with one sentence that names the file (and tensor) in
 * fault. */
MUST_CHECK int safetensors_open(const char *path, struct safetensors *ret, struct fault *fault);
/* NULL when there is no tensor of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
/* A zeroed struct is fine. */
void safetensors_close(struct safetensors *file);

#endif
