/*
 * model_config.h - what config.json says of a model of one of the families (family.h).
 *
 * Read as transformers 4 and 5 write it; what it leaves out has the value that transformers gives
 * it. What would change the computation and is not implemented is refused by its name, never
 * ignored.
 */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "client/coppice_program.h"
#include "family.h"
#include "rope.h"

#include <stddef.h>

#define MODEL_LAYERS_MAX 1024u

struct model_config {
	const struct family *family;
	uint32_t n_vocab, n_layers, hidden, intermediate;
	uint32_t n_q_heads, n_kv_heads;
	uint32_t head_dim; /* a multiple of 16, at most 256 */
	uint32_t max_positions; /* within what was asked for */
	enum coppice_dtype dtype; /* of the weights, by config.json's word */
	enum coppice_act act;
	float norm_eps;
	bool tied; /* the embedding is the head too */
	bool qkv_bias, o_bias, mlp_bias;
	struct rope rope;
	bool unturned[MODEL_LAYERS_MAX]; /* layers without RoPE */
};

struct model_text {
	const char *path; /* for the sentences */
	const char *bytes;
	size_t n_bytes;
};

/* max_positions: a sequence has so many tokens at most, 0: as many as the model was made for. 0, or
 * -errno and a sentence that names file and key. */
MUST_CHECK int model_config_parse(const struct model_text *text, uint32_t max_positions,
				  struct model_config *ret, struct fault *fault);

#endif
