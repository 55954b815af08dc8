/*
 * llama_config.h - what config.json says of a Llama-architecture model.
 *
 * A part of what client/model reads: the forward pass here has no biases, one kind of layer and no
 * factors. What would change the computation and is not implemented is refused by its name, never
 * ignored.
 */
#ifndef AGENT_LLAMA_CONFIG_H
#define AGENT_LLAMA_CONFIG_H

#include "client/model/fault.h"
#include "client/model/rope.h"

#include <stdbool.h>
#include <stdint.h>

struct llama_config {
	uint32_t n_vocab;
	uint32_t n_layers;
	uint32_t hidden;
	uint32_t intermediate;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim; /* even */
	uint32_t max_positions;
	struct rope rope; /* default or llama3 */
	float norm_eps;
	bool tied; /* the embedding is the output matrix too */
	uint64_t hash; /* of the file's bytes */
};

/* 0, or -errno and a sentence that names file and key. */
MUST_CHECK int llama_config_read(const char *path, struct llama_config *ret, struct fault *fault);

#endif
