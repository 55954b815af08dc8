/*
 * program_model.h - small programs with random weights, of every kind of layer that families of
 * models have, for tests of whatever checks or runs them.
 *
 *      norms before   NORM, LINEAR q k v, ATTEND, LINEAR onto X, NORM, LINEAR gated, LINEAR onto X
 *      norms behind   LINEAR q k v, ATTEND, LINEAR, NORM onto X, LINEAR gated, LINEAR, NORM onto X
 *      side by side   NORM, LINEAR q k v, ATTEND, LINEAR onto X, LINEAR gated onto X, NORM in place
 */
#ifndef COPPICE_TESTS_PROGRAM_MODEL_H
#define COPPICE_TESTS_PROGRAM_MODEL_H

#include "kernels/program/program.h"
#include "oracle.h"

#define MODEL_TENSORS 160
#define MODEL_LAYERS 6
#define MODEL_SLOTS 18

/* The slots of a layer. */
enum model_slot {
	MODEL_NORM,
	MODEL_Q, /* or q, k and v in one */
	MODEL_K,
	MODEL_V,
	MODEL_Q_BIAS,
	MODEL_K_BIAS,
	MODEL_V_BIAS,
	MODEL_Q_NORM,
	MODEL_K_NORM,
	MODEL_O,
	MODEL_O_BIAS,
	MODEL_NORM_2,
	MODEL_GATE, /* or gate and up in one */
	MODEL_UP,
	MODEL_GATE_BIAS,
	MODEL_UP_BIAS,
	MODEL_DOWN,
	MODEL_DOWN_BIAS,
};

struct model_want {
	uint32_t n_layers, n_q_heads, n_kv_heads, head_dim, hidden, intermediate, n_vocab;
	uint32_t page_tokens, n_turned;
	enum work_dtype dtype; /* of KV */
	enum work_dtype weights;
	bool mixed; /* tensors are of any type */
	bool mixed_vectors; /* vectors are, which norms and biases are */
	bool fused, biases, behind, tied;
	bool side; /* instead of before and behind; intermediate is hidden then */
	bool unturned; /* every other layer */
	uint32_t norms; /* PROGRAM_HEAD_NORM, PROGRAM_WIDE_NORM or 0 */
	uint32_t act;
	float embed_factor, logit_factor, rope_factor;
};

struct program_model {
	struct program p; /* of the arrays below */
	struct program_op ops[PROGRAM_KINDS_MAX * PROGRAM_OPS_MAX];
	struct program_kind kinds[PROGRAM_KINDS_MAX];
	uint8_t kind_of[PROGRAM_LAYERS_MAX];
	uint32_t slots[PROGRAM_LAYERS_MAX * PROGRAM_SLOTS_MAX];
	double inv_freq[128];
	struct program_tensor tensors[MODEL_TENSORS];
	char names[MODEL_TENSORS][32];
	float *values[MODEL_TENSORS]; /* owned: what is in the weights, decoded */
	char *weights; /* owned, [p.weights_bytes] */
};

/* Something of everything, by chance. */
struct model_want model_want_random(struct oracle_random *random);
/* Asserts that there is memory. Owned by the caller. */
struct program_model *model_new(const struct model_want *want, struct oracle_random *random);
void model_free(struct program_model *model);

#endif
