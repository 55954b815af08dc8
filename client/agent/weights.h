/*
 * weights.h - a model folder's weights: model.safetensors, or the shards that
 * model.safetensors.index.json names.
 */
#ifndef AGENT_WEIGHTS_H
#define AGENT_WEIGHTS_H

#include "safetensors.h"
#include "vec.h"

struct weights {
	struct safetensors *files; /* owned */
	uint32_t n_files;
};

/* 0, or -errno and a sentence. */
int weights_open(const char *dir, struct weights *ret, struct fault *fault);
/* The tensor as a matrix of n_out rows of n_in; n_out == 0: a vector of n_in. Missing, of another
 * shape, or neither F32, F16 nor BF16: -EINVAL and a sentence that names the tensor. */
int weights_matrix(const struct weights *weights, const char *name, uint64_t n_out, uint64_t n_in,
		   struct vec_matrix *ret, struct fault *fault);
/* Hash of every byte of every file, seeded with seed. */
uint64_t weights_hash(const struct weights *weights, uint64_t seed);
/* A zeroed struct is fine. */
void weights_close(struct weights *weights);

#endif
