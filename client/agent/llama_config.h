/*
 * llama_config.h - what config.json says of a Llama-architecture model.
 *
 * Read as transformers 4 (rope_theta and rope_scaling at the top) and 5 (both inside
 * rope_parameters) write it. What would change the computation and is not implemented is refused by
 * its name, never ignored.
 */
#ifndef AGENT_LLAMA_CONFIG_H
#define AGENT_LLAMA_CONFIG_H

#include "fault.h"

#include <stdbool.h>
#include <stdint.h>

/* Stretches the slow rotations to reach beyond the trained length, leaves the fast ones. */
struct llama_rope_scaling {
	bool llama3; /* false: none */
	double factor, low_freq_factor, high_freq_factor;
	double original_positions;
};

struct llama_config {
	uint32_t n_vocab;
	uint32_t n_layers;
	uint32_t hidden;
	uint32_t intermediate;
	uint32_t n_q_heads;
	uint32_t n_kv_heads;
	uint32_t head_dim; /* even */
	uint32_t max_positions;
	double rope_theta;
	struct llama_rope_scaling rope;
	float norm_eps;
	bool tied; /* the embedding is the output matrix too */
	uint64_t hash; /* of the file's bytes */
};

/* 0, or -errno and a sentence that names file and key. */
MUST_CHECK int llama_config_read(const char *path, struct llama_config *ret, struct fault *fault);

#endif
