/*
 * program.h - what a backend runs between two attentions: a model's forward pass over many rows.
 *
 * A row is a token of some sequence. It passes an embedding, the operations of each layer's kind,
 * and where its results are wanted a final norm and a head. Rows of everybody who is at the same
 * program go together, so that each weight is read once for all of them.
 *
 *      X = embed[id] * embed_factor
 *      NORM     out = in / sqrt(mean(in^2) + eps) * w[0]
 *      LINEAR   out = in w[0]' + bias[0] | in w[1]' + bias[1] | in w[2]' + bias[2]
 *               GATED: out = act(g) * u, where g and u are the two halves of that; out is
 *               another register than in
 *      ATTEND   in is q | k | v of all heads, out the heads' outputs: norms of q and k (w[0] and
 *               w[1]), RoPE, append, attention
 *      ADD      of NORM and LINEAR: out, which is X, += instead of =
 *      logits = norm(X, final_norm) head' * logit_factor
 *
 * Rounding. X, norms, softmax, gates, rotations, logits and all sums are fp32 at least. Inputs of
 * products may be rounded once to the model's type, which a GPU does and a CPU does not; q, k and v
 * are, once, after norms and rotations, and so is what attention gives. Angles of rotations are
 * computed in double or as good as that: an fp32 product errs by 0.008 radians at position 131,072.
 */
#ifndef COPPICE_KERNELS_PROGRAM_H
#define COPPICE_KERNELS_PROGRAM_H

#include "proto/must_check.h"
#include "kernels/work.h"

#define PROGRAM_OPS_MAX 16u /* of a kind of layer */
#define PROGRAM_KINDS_MAX 16u
#define PROGRAM_SLOTS_MAX 32u
#define PROGRAM_LAYERS_MAX 1024u
#define PROGRAM_NONE UINT32_MAX /* no slot, no tensor */
#define PROGRAM_TOP_MAX 64u

enum program_op_kind { PROGRAM_NORM = 1, PROGRAM_LINEAR = 2, PROGRAM_ATTEND = 3 };
enum program_register { PROGRAM_X, PROGRAM_A, PROGRAM_B, PROGRAM_C, PROGRAM_REGISTERS };
enum program_act { PROGRAM_ACT_NONE, PROGRAM_SILU, PROGRAM_GELU, PROGRAM_GELU_TANH };
enum program_op_flags {
	PROGRAM_ADD = 1u << 0,
	PROGRAM_GATED = 1u << 1,
	PROGRAM_HEAD_NORM = 1u << 2,
	PROGRAM_WIDE_NORM = 1u << 3,
	PROGRAM_UNTURNED = 1u << 4, /* of ATTEND: no RoPE */
};

/* w and bias: slots, columns of the table of tensors; PROGRAM_NONE where there is none, and in what
 * n_w leaves unused. act is 0 without a gate. */
struct program_op {
	uint32_t kind, flags;
	uint32_t in, out;
	uint32_t act;
	uint32_t n_w;
	uint32_t w[3], bias[3];
	float eps;
};

struct program_kind {
	uint32_t first_op, n_ops;
};

/* n_out rows of n_in elements, one behind the other; n_out 0: a vector of n_in. */
struct program_tensor {
	const char *name; /* for who is told what is wrong with it */
	enum work_dtype dtype;
	uint32_t n_out, n_in;
	uint64_t offset; /* in the weights' memory, a multiple of PROGRAM_ALIGN */
};

#define PROGRAM_ALIGN 256u

static inline uint64_t program_tensor_bytes(const struct program_tensor *t)
{
	return (uint64_t)(t->n_out ? t->n_out : 1) * t->n_in * work_dtype_bytes(t->dtype);
}

struct program {
	struct work_shape shape; /* of its KV */
	uint32_t hidden, n_vocab, max_positions;
	float eps; /* of the final norm */
	float embed_factor, logit_factor, rope_factor;
	uint32_t n_turned; /* even, at most the head's dim */
	const double *inv_freq; /* [n_turned / 2] radians a position */
	uint32_t embed, final_norm, head; /* tensors; head == embed: tied */
	const struct program_op *ops; /* [n_ops] */
	const struct program_kind *kinds; /* [n_kinds] */
	const uint8_t *kind_of; /* [shape.n_layers] */
	const uint32_t *slots; /* [shape.n_layers][n_slots]: tensors, or PROGRAM_NONE */
	const struct program_tensor *tensors; /* [n_tensors] */
	uint32_t n_ops, n_kinds, n_slots, n_tensors;
	uint64_t weights_bytes; /* of the memory that tensors lie in */
};

static inline uint32_t program_q_width(const struct program *p)
{
	return p->shape.n_q_heads * p->shape.head_dim;
}

static inline uint32_t program_kv_width(const struct program *p)
{
	return p->shape.n_kv_heads * p->shape.head_dim;
}

/* The tensor of a slot in a layer. */
static inline const struct program_tensor *program_tensor(const struct program *p, uint32_t layer,
							  uint32_t slot)
{
	return &p->tensors[p->slots[layer * p->n_slots + slot]];
}

/* Elements of a row in each register, at most: X has hidden of them. */
struct program_widths {
	uint32_t of[PROGRAM_REGISTERS];
	uint32_t product; /* what a LINEAR makes before its gate */
};

#define PROGRAM_WHY_BYTES 320u

/* Whether it can be run: one walk over the widths, layer by layer. Nothing of p is trusted but its
 * pointers and the lengths of their arrays. 0 with the widths; or -EINVAL and a sentence that names
 * layer, operation and tensor. */
MUST_CHECK int program_check(const struct program *p, struct program_widths *ret,
			     char why[PROGRAM_WHY_BYTES]);

/* What is wanted of a row, and where it goes. Addresses are the backend's own, of arena_attach. */
enum program_want {
	/* the n_top likeliest and their logits; alike: the lower id first */
	PROGRAM_WANT_TOP = 1u << 0,
	PROGRAM_WANT_SCORE = 1u << 1, /* log-probability of the id `next` */
	PROGRAM_WANT_LOGITS = 1u << 2, /* behind struct program_row: fp32 [n_vocab] */
	PROGRAM_WANT_HIDDEN = 1u << 3, /* then, of the final norm: fp32 [hidden] */
};

struct program_top {
	uint32_t id;
	float logit;
};

/* What comes of a row: what crosses to clients as it is. */
struct program_row {
	/* natural log of the sum of exp(logit) over the vocabulary; NaN where PROGRAM_WANT_HIDDEN
	 * alone is wanted */
	float lse;
	float score; /* of `next`: its logit - lse; NaN where none was asked for */
	uint32_t n_top; /* as many as were wanted, unless logits are no numbers */
	uint32_t reserved; /* 0 */
	struct program_top top[PROGRAM_TOP_MAX]; /* likeliest first; what is behind n_top is 0 */
};

struct program_wanted {
	uint32_t row; /* of the run, ascending */
	uint32_t want; /* enum program_want */
	uint32_t n_top;
	uint32_t next; /* PROGRAM_NONE: none */
	uint64_t out; /* address of a struct program_row */
};

/* Rows of all sequences of a batch, in order of the job's queries. */
struct program_rows {
	uint32_t n_rows;
	const uint32_t *ids; /* [n_rows], below n_vocab */
	const uint32_t *positions; /* [n_rows], below max_positions: what a row is turned by */
	const struct program_wanted *wanted; /* [n_wanted] */
	uint32_t n_wanted;
};

#endif
