/*
 * decode_weights.h - random weights for a model of any family that client/model reads: which
 * tensors it has, of what shapes, and a safetensors file of them.
 */
#ifndef COPPICE_BENCH_DECODE_WEIGHTS_H
#define COPPICE_BENCH_DECODE_WEIGHTS_H

#include "client/model/coppice_hf.h"
#include "proto/must_check.h"

#include <stdint.h>

struct decode_tensor {
	const char *name; /* the program's */
	uint32_t n_out, n_in; /* n_out 0: a vector */
	bool is_norm; /* whose weights are 1 */
};

struct decode_tensors {
	struct coppice_hf_program *program; /* owned */
	struct decode_tensor *of; /* owned, [n] */
	uint32_t n;
};

/* Of a config.json. Ends the program with a sentence where it cannot be read. */
void decode_tensors_read(const char *config, struct decode_tensors *ret);
void decode_tensors_done(struct decode_tensors *tensors);
/* Elements of matrices that a pass reads: of all layers, and of the head. */
uint64_t decode_tensors_read_a_pass(const struct decode_tensors *tensors);
/*
 * bf16, uniform with the variance 1 / inputs, so that a row keeps its size through the layers.
 * Written under another name and renamed when it is whole: what is there is complete. Ends the
 * program with a sentence where that fails.
 */
void decode_weights_write(const char *path, const struct decode_tensors *tensors);

#endif
