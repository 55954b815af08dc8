/*
 * safetensors.h - a mapped .safetensors file, whose header has been checked: its tensors are safe
 * to read whole.
 */
#ifndef AGENT_SAFETENSORS_H
#define AGENT_SAFETENSORS_H

#include "client/model/fault.h"

#include "proto/safetensors/safetensors_header.h"

struct safetensors {
	void *map; /* owned mapping of the whole file */
	size_t map_bytes;
	const char *data; /* in the mapping; any alignment */
	struct safetensors_header header; /* owned */
};

/* Maps and checks the file. 0, or -errno with one sentence that names the file (and tensor) in
 * fault. */
MUST_CHECK int safetensors_open(const char *path, struct safetensors *ret, struct fault *fault);
/* NULL when there is no tensor of that name. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);
/* A zeroed struct is fine. */
void safetensors_close(struct safetensors *file);

#endif
