/*
 * llama.h - a Llama-architecture decoder: weights by the names that Hugging Face uses, and the
 * forward pass.
 *
 *      x = embed[id]
 *      each layer:  h = norm(x);  q, k, v = h Wq', h Wk', h Wv';  q, k turned by position
 *                   x += attention(q, k, v) Wo'
 *                   h = norm(x);  x += (silu(h Wgate') * h Wup') Wdown'
 *      logits = norm(x) Whead'
 *
 * Activations are fp32; Q, K, V and O take the dtype of the attention. Rows are independent of
 * their company (kernels/rows/rows.h).
 */
#ifndef AGENT_LLAMA_H
#define AGENT_LLAMA_H

#include "attention.h"
#include "llama_config.h"
#include "kernels/rows/rows.h"
#include "weights.h"

struct llama_layer {
	float *attn_norm, *mlp_norm; /* owned, [hidden] */
	struct rows_matrix q, k, v, o, gate, up, down;
};

struct llama {
	struct llama_config config;
	struct weights weights; /* the matrices lie in it */
	uint64_t hash; /* of config and weights */
	const struct rows_ops *ops;
	struct rows_matrix embed, head;
	struct llama_layer *layers; /* owned, [n_layers] */
	float *norm; /* owned, [hidden] */
	double *inv_freq; /* owned, [head_dim / 2]: radians a position */
};

/* K and V of one token over all layers. */
uint64_t llama_kv_bytes_per_token(const struct llama *model, enum coppice_dtype dtype);

/* Of the matrices that a pass reads: all but the embedding, of which it takes rows, unless that is
 * the head too. */
uint64_t llama_pass_bytes(const struct llama *model);

/* The rows of one forward pass, at most the attention's max_rows. */
struct llama_batch {
	uint32_t n_rows;
	const uint32_t *ids; /* [n_rows], below n_vocab */
	const uint32_t *positions; /* [n_rows] */
	const struct attention_part *parts; /* their rows add up to n_rows */
	uint32_t n_parts;
	const uint32_t *wanted; /* [n_wanted] rows whose logits are wanted, ascending */
	uint32_t n_wanted;
};

/* Working memory of passes over one attention. */
struct llama_pass {
	const struct llama *model;
	struct attention *attention;
	float *x, *h; /* owned: [rows][hidden] */
	float *wide; /* owned: [rows] of the widest intermediate, twice */
	float *rotations; /* owned: [rows][head_dim / 2] cosine and sine */
};

MUST_CHECK int llama_pass_init(struct llama_pass *pass, const struct llama *model,
			       struct attention *attention, struct fault *fault);
void llama_pass_done(struct llama_pass *pass);
/* Runs the batch; logits [n_wanted][n_vocab]. Blocks in attention. 0, or -errno and a sentence. */
MUST_CHECK int llama_forward(struct llama_pass *pass, const struct llama_batch *batch,
			     float *logits, struct fault *fault);

#endif
