/*
 * family.h - what the model types that are known have in common, and in what they differ.
 *
 * All are decoders of RMS norms, grouped-query attention with RoPE, and a gated feed-forward part.
 * Defaults are those of transformers, where config.json leaves a key out.
 */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

enum family_traits {
	FAMILY_QKV_BIAS = 1u << 0, /* always, whatever attention_bias says */
	FAMILY_HEAD_NORMS = 1u << 1, /* of q and k, head by head */
	FAMILY_WIDE_NORMS = 1u << 2, /* of q and of k, over all heads */
	FAMILY_POST_NORMS = 1u << 3, /* norms stand behind attention and feed-forward, not before */
	FAMILY_FUSED = 1u << 4, /* q, k, v are one tensor; so are gate and up */
	FAMILY_WINDOWED = 1u << 5, /* sliding_window alone is enough for a window */
	FAMILY_PARTIAL = 1u << 6, /* some dims of a head are turned, others not */
	FAMILY_SU = 1u << 7, /* rope_type "su" and "yarn" are old names of longrope */
};

/* A bit for each, so that a key of config.json says in which families it has a meaning. */
enum family_bit {
	FAMILY_LLAMA = 1u << 0,
	FAMILY_MISTRAL = 1u << 1,
	FAMILY_QWEN2 = 1u << 2,
	FAMILY_QWEN3 = 1u << 3,
	FAMILY_PHI3 = 1u << 4,
	FAMILY_OLMO2 = 1u << 5,
	FAMILY_SEED_OSS = 1u << 6,
	FAMILY_SMOLLM3 = 1u << 7,
};

struct family {
	const char *name; /* model_type */
	enum family_bit bit;
	unsigned int traits; /* enum family_traits */
	uint32_t n_kv_heads; /* 0: as many as query heads */
	uint32_t head_dim; /* 0: hidden_size / num_attention_heads */
	uint32_t window; /* sliding_window; 0: none */
	uint32_t original_positions; /* 0: max_position_embeddings */
	double eps, theta;
	bool tied, attention_bias;
};

/* NULL: there is none of that model_type. */
const struct family *family_find(const char *name);
/* "llama, mistral, ..." */
const char *family_names(void);

#endif
