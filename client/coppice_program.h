/*
 * coppice_program.h - models whose weights the daemon holds, and whose forward pass it runs.
 *
 * A program is a template for each kind of layer: a list of operations, each of which is one fused
 * kernel of the daemon's, over four registers. There are no branches, and nothing is fused by
 * guessing. A row of a token passes it so:
 *
 *      X = embed[id] * embed_factor
 *      each layer: the operations of its kind, in order; exactly one of them is COPPICE_ATTEND
 *      logits = norm(X, final_norm, eps) head' * logit_factor
 *
 * X is the residual, [hidden], fp32. A, B and C are as wide as what was last written to them;
 * nothing is read before it was written in the same layer.
 *
 *      COPPICE_NORM     out = in / sqrt(mean(in^2) + eps) * w[0]
 *      COPPICE_LINEAR   out = in w[0]' + bias[0] | in w[1]' + bias[1] | in w[2]' + bias[2], the
 *                       outputs of its n_w matrices behind each other;
 *                       GATED: out = act(g) * u, where g and u are the two halves of that;
 *                       out is another register than in
 *      COPPICE_ATTEND   in is q | k | v of all heads, out is the heads' outputs; w[0] and w[1] are
 *                       weights of norms of q and of k, [head_dim] with HEAD_NORM, [all heads'
 *                       dims] with WIDE_NORM; q and k are turned by position (RoPE), K and V go to
 *                       the sequence, and its rows attend to them
 *      ADD              of NORM and LINEAR: out, which is X, += instead of =
 *
 * RoPE turns elements i and i + n_turned / 2 of a head, for i below n_turned / 2, by position *
 * inv_freq[i] radians; both cosine and sine are multiplied by rope_factor. What is behind n_turned
 * is left as it is.
 */
#ifndef COPPICE_PROGRAM_H
#define COPPICE_PROGRAM_H

#include "coppice.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- weights: held once --------------------------------------------------------------------- */

/*
 * The tensors of safetensors files, held by the daemon once for all processes of a user. Who opens
 * the same files has the same weights, at once if they are there; so do files of the same tensors.
 * They stay for as long as somebody has them open, and beyond that while there is room.
 *
 *      fd = open("model.safetensors", O_RDONLY);
 *      coppice_weights_open(c, &fd, 1, &weights);
 *      struct coppice_progress progress = {.size = sizeof(progress)};
 *      while (coppice_weights_wait(weights, COPPICE_SECONDS(1), &progress) == -ETIMEDOUT)
 *              say(progress.bytes_done, progress.bytes);
 */
struct coppice_weights;

#define COPPICE_WEIGHT_FILES_MAX 128u

/* fds: of 1 to COPPICE_WEIGHT_FILES_MAX files, borrowed during the call; the daemon's loader reads
 * them from their begin, wherever they stand. Blocks for a message and its answer, and where as
 * many are being loaded as may be, until one may begin: -EAGAIN after a minute. -EUSERS: as many as
 * the session may have; -EOPNOTSUPP: the daemon's backend holds none. */
COPPICE_MUST_CHECK int coppice_weights_open(struct coppice *c, const int *fds, uint32_t n_fds,
					    struct coppice_weights **ret);

struct coppice_progress {
	size_t size; /* sizeof(struct coppice_progress), must be set */
	uint64_t bytes; /* of the files; 0: not known yet */
	uint64_t bytes_done;
};

/* Waits until they are there. 0; -ETIMEDOUT: they are on their way still; else why they cannot be
 * had, in a sentence that names file and tensor: -EINVAL, -EDQUOT, -ENOSPC... ret, of which size
 * is set, may be NULL. Blocks. */
COPPICE_MUST_CHECK int coppice_weights_wait(struct coppice_weights *weights, uint64_t timeout_ns,
					    struct coppice_progress *ret);

/* Of types that programs take, matrices and vectors; others are left out. n_out 0: a vector. */
struct coppice_tensor {
	const char *name; /* the weights' */
	enum coppice_dtype dtype;
	uint32_t n_out, n_in; /* n_out rows of n_in elements */
	uint32_t reserved;
};

/* Once they have been waited for, and none before; in order of names, by number from 0. Neither
 * blocks. */
uint32_t coppice_weights_count(const struct coppice_weights *weights);
/* -EINVAL: there is none of that number. */
COPPICE_MUST_CHECK int coppice_weights_tensor(const struct coppice_weights *weights,
					      uint32_t number, struct coppice_tensor *ret);
/* -ENOENT: there is none of that name. */
COPPICE_MUST_CHECK int coppice_weights_find(const struct coppice_weights *weights, const char *name,
					    uint32_t *ret_number);
/*
 * Maps the memory that they lie in, for kernels of one's own: one copy for all processes of a user
 * and for the daemon's programs. What comes is an arena but for steps, entries and pieces, which
 * take none of it: coppice_arena_base, _bytes, _ref, _unref and _free are for it. It stays mapped
 * beyond coppice_weights_close, and beyond coppice_close as any arena does; meanwhile it counts as
 * weights that the session has open.
 *
 * Of a daemon on the CPU: host memory. What is written to it is this process's own from then on.
 * On a GPU: device memory of that GPU, by CUDA IPC as of a device arena. Whoever maps it can write
 * to it, and so change the weights of all who have them: of this user alone, who can only mislead
 * himself, as nobody shares weights with another.
 *
 * Blocks: where nobody has mapped them before, on a CPU for as long as a copy of them takes.
 * -ETIMEDOUT: not yet, ask again; -EAGAIN: they have not been waited for; -EUSERS as
 * coppice_weights_open; -ENOMEM, -EIO, -ENODEV as coppice_arena_new; -EOPNOTSUPP: the daemon's
 * backend lends none; -EPERM: the daemon does not (lend_weights).
 */
COPPICE_MUST_CHECK int coppice_weights_map(struct coppice_weights *weights, uint64_t timeout_ns,
					   struct coppice_arena **ret);
/* Where in that a tensor begins, in bytes; its rows follow each other. -EINVAL as
 * coppice_weights_tensor. Does not block. */
COPPICE_MUST_CHECK int coppice_weights_offset(const struct coppice_weights *weights,
					      uint32_t number, uint64_t *ret);
/* Programs that were made of them keep what they need. Blocks for a message and its answer. NULL
 * is fine. Before coppice_close. */
void coppice_weights_close(struct coppice_weights *weights);

/* ---- programs ------------------------------------------------------------------------------- */

#define COPPICE_OPS_MAX 16u /* of a kind of layer */
#define COPPICE_KINDS_MAX 16u
#define COPPICE_SLOTS_MAX 32u
#define COPPICE_NO_SLOT UINT32_MAX

enum coppice_op_kind { COPPICE_NORM = 1, COPPICE_LINEAR = 2, COPPICE_ATTEND = 3 };
enum coppice_register { COPPICE_X = 0, COPPICE_A = 1, COPPICE_B = 2, COPPICE_C = 3 };
enum coppice_act {
	COPPICE_ACT_NONE = 0,
	COPPICE_ACT_SILU = 1,
	COPPICE_ACT_GELU = 2, /* by erf */
	COPPICE_ACT_GELU_TANH = 3,
};
enum coppice_op_flags {
	COPPICE_OP_ADD = 1u << 0,
	COPPICE_OP_GATED = 1u << 1,
	COPPICE_OP_HEAD_NORM = 1u << 2,
	COPPICE_OP_WIDE_NORM = 1u << 3,
	COPPICE_OP_UNTURNED = 1u << 4, /* of ATTEND: without RoPE */
};

/* w and bias are slots: columns of the program's table of tensors, which has a row for each layer.
 * bias: COPPICE_NO_SLOT where there is none, and in what n_w leaves unused, as w. */
struct coppice_op {
	uint32_t kind; /* enum coppice_op_kind */
	uint32_t flags;
	uint32_t in, out; /* enum coppice_register */
	uint32_t act; /* of GATED */
	uint32_t n_w; /* LINEAR: 1 to 3; NORM: 1; ATTEND: 2 with norms, else 0 */
	uint32_t w[3], bias[3];
	float eps; /* of NORM, and of ATTEND's norms */
};

struct coppice_layer_kind {
	uint32_t first_op, n_ops;
};

/* Pointers are borrowed during the call. Tensors are numbers of the weights'. */
struct coppice_program_info {
	size_t size; /* sizeof(struct coppice_program_info), or 0 */
	uint32_t hidden, n_vocab, n_layers;
	uint32_t n_q_heads, n_kv_heads, head_dim;
	uint32_t max_positions; /* a sequence has as many tokens at most */
	/* of KV, and of what products are made of: see kernels/README.md */
	enum coppice_dtype dtype;
	float scale; /* of the scores; 0: 1 / sqrt(head_dim) */
	float eps; /* of the final norm */
	float embed_factor, logit_factor; /* 0: 1 */
	float rope_factor; /* 0: 1 */
	uint32_t n_turned; /* even, at most head_dim */
	const double *inv_freq; /* [n_turned / 2], radians a position */
	uint32_t embed, final_norm, head; /* tensors; head == embed: tied */
	const struct coppice_op *ops; /* [n_ops] */
	const struct coppice_layer_kind *kinds; /* [n_kinds] */
	const uint8_t *kind_of; /* [n_layers] */
	/* [n_layers][n_slots]; COPPICE_NO_SLOT where a kind has no use of one */
	const uint32_t *tensors;
	uint32_t n_ops, n_kinds, n_slots;
	uint32_t page_tokens; /* 16, 32, 64; 0: the daemon's choice */
};

/* Gives the daemon a program, which checks it, and opens it as a model: sequences are opened and
 * forked as of any other, but coppice_decode takes the place of extensions and steps. Who gives the
 * same program with the same weights shares KV, and passes. *ret_model is its number in this
 * connection. Blocks for a message and its answer. -EINVAL: the sentence names layer, operation and
 * tensor; -EAGAIN: the weights have not been waited for; -EOPNOTSUPP, -ENOSPC, -EUSERS as
 * coppice_model_open. */
COPPICE_MUST_CHECK int coppice_program_new(struct coppice *c, struct coppice_weights *weights,
					   const struct coppice_program_info *info,
					   uint32_t *ret_model);

/* ---- tokens --------------------------------------------------------------------------------- */

#define COPPICE_ROWS_MAX 256u /* of which something is wanted, of an entry */
#define COPPICE_TOP_MAX 64u

enum coppice_want {
	COPPICE_WANT_TOP = 1u << 0, /* the likeliest tokens */
	COPPICE_WANT_SCORE = 1u << 1, /* the log-probability of the next of the entry's tokens */
	COPPICE_WANT_LOGITS = 1u << 2, /* behind the row: fp32 [n_vocab] */
	COPPICE_WANT_HIDDEN = 1u << 3, /* then, of the final norm: fp32 [hidden] */
};

struct coppice_top {
	uint32_t id;
	float logit;
};

/* What comes of a token. */
struct coppice_row {
	float lse; /* natural log of the sum of exp(logit) over the vocabulary */
	float score; /* with COPPICE_WANT_SCORE; NaN of a sequence's last token */
	uint32_t n_top;
	uint32_t reserved;
	struct coppice_top top[COPPICE_TOP_MAX]; /* likeliest first; alike: the lower id first */
};

#define COPPICE_DECODE_DRAFT_MAX 64u

/* n_new tokens that follow what the sequence has; rows of those from first_wanted on are wanted:
 * n_new - 1: the last one alone. With parents they are a draft, as of coppice_seq_draft: each token
 * follows that one, UINT32_MAX the sequence itself; COPPICE_DECODE_DRAFT_MAX at most. They have no
 * score, and nobody else sees them until coppice_seq_accept says which stay. */
struct coppice_decode_seq {
	struct coppice_seq *seq;
	const uint32_t *ids; /* copied */
	uint32_t n_new, first_wanted;
	const uint32_t *parents; /* [n_new], of all sequences of an entry, or NULL of all; copied */
};

struct coppice_decode {
	size_t size; /* sizeof(struct coppice_decode), or 0 */
	const struct coppice_decode_seq *seqs; /* of one lane and program */
	uint32_t n_seqs;
	uint32_t want; /* enum coppice_want; 0: of no row anything */
	uint32_t n_top; /* with COPPICE_WANT_TOP, 1 to COPPICE_TOP_MAX; else 0 */
	uint32_t out_stride; /* bytes from row to row; 0: rows follow each other */
	/* In an arena of this connection: a struct coppice_row, with what follows it, of each row
	 * that is wanted, in order of sequences. */
	void *out;
};

/*
 * Appends tokens, runs them through the program and publishes them, in passes that take everybody's
 * rows together. At most 32,768 tokens of a sequence, and 65,000 of an entry. A prompt is published
 * chunk by chunk. The ticket's result has the number of tokens that were published as its value,
 * also after a failure (0 of a draft); then each sequence has what coppice_seq_length says, and a
 * trim to that clears it. Does not block; -EAGAIN as coppice_nop; -EINVAL: the sentence names the
 * sequence; -EBUSY: a sequence was asked about (coppice_seq_wait_async, or a coppice_seq_wait
 * that timed out), and has no answer yet.
 */
COPPICE_MUST_CHECK int coppice_decode(struct coppice_lane *lane,
				      const struct coppice_decode *decode, uint64_t *ret_ticket);
/* The same, and waits until it has completed, as coppice_step_wait does. Blocks. */
COPPICE_MUST_CHECK int coppice_decode_wait(struct coppice_lane *lane,
					   const struct coppice_decode *decode, uint64_t timeout_ns,
					   uint64_t *ret_ticket);

/*
 * The rest of a decode is not wanted any more: it ends with -ECANCELED before its next chunk, or as
 * it ends anyhow. What was published stays, and is the result's value; drafts go, all of them. Its
 * sequences, as long as coppice_seq_length says, may go on at once, without a trim. Does not block,
 * and may be called while another thread waits for the ticket. 0, also where it has ended; -EINVAL:
 * it was not submitted on this lane, or is no decode.
 */
COPPICE_MUST_CHECK int coppice_decode_cancel(struct coppice_lane *lane, uint64_t ticket);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
