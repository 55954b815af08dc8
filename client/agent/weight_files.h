/*
 * weight_files.h - which files of a model's folder have its weights: model.safetensors, or the
 * shards that model.safetensors.index.json names.
 */
#ifndef AGENT_WEIGHT_FILES_H
#define AGENT_WEIGHT_FILES_H

#include "client/model/fault.h"

#include <stdint.h>

struct weight_files {
	char **paths; /* owned, [n] */
	uint32_t n;
};

/* In the order of the index. They need not be there. 0, or -errno and a sentence. */
MUST_CHECK int weight_files_find(const char *dir, struct weight_files *ret, struct fault *fault);
/* A zeroed struct is fine. */
void weight_files_done(struct weight_files *files);

#endif
