/*
 * weights.h - a model folder's weights: model.safetensors, or the shards that
 * model.safetensors.index.json names.
 */
#ifndef AGENT_WEIGHTS_H
#define AGENT_WEIGHTS_H

#include "safetensors.h"
#include "kernels/rows/rows.h"

struct weights {
	struct safetensors *files; /* owned */
	uint32_t n_files;
};

/* 0, or -errno and a sentence. */
MUST_CHECK int weights_open(const char *dir, struct weights *ret, struct fault *fault);
/* n_out rows of n_in; n_out 0: a vector of n_in. */
struct weights_shape {
	uint64_t n_out, n_in;
};

/* The tensor as a matrix of this shape. Missing, of another shape, or neither F32, F16 nor BF16:
 * -EINVAL and a sentence that names the tensor. */
MUST_CHECK int weights_matrix(const struct weights *weights, const char *name,
			      struct weights_shape shape, struct rows_matrix *ret,
			      struct fault *fault);
uint64_t weights_bytes(const struct weights *weights); /* of the files */
/* Hash of every byte of every file, seeded with seed. */
uint64_t weights_hash(const struct weights *weights, uint64_t seed);
/* A zeroed struct is fine. */
void weights_close(struct weights *weights);

#endif
