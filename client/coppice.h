/*
 * coppice.h - libcoppice: attention over KV that many processes share.
 *
 * coppiced keeps the keys and values of token sequences in a radix tree, so that what is common to
 * several sequences, of whatever process, exists once and is computed once. An app writes Q, K and
 * V of its new tokens into an arena, submits a step per layer, and finds the attention output O in
 * the arena.
 *
 *      connect - model - arena - lane
 *      seq_open(prompt) -> how much is cached, how much somebody else is computing right now
 *      extend(new tokens); for each layer: write q, k, v; step; wait; read o
 *      ... extend, steps, extend, steps ...; close
 *
 * Conventions. Functions that can fail return 0 or -errno, and coppice_explain says in a sentence
 * what was wrong, where, and what to do. Each says whether it blocks. Nothing here starts a thread
 * (but for CUDA streams, which see), installs a signal handler, prints or exits. Times are
 * CLOCK_MONOTONIC nanoseconds as durations unless called deadline. Threads: one lane (and its
 * sequences) by one thread at a time; different lanes of one connection may be used by different
 * threads at once; everything else on a connection may be called by any thread. After fork() the
 * child's copy of a connection is dead: every call says -EOWNERDEAD. When the daemon dies every
 * call and every wait ends with -ECONNRESET within 200 ms.
 *
 * Structs that may grow begin with `size`, their sizeof as the app was compiled. Of those that the
 * app fills, 0 stands for the struct of version 0.1: an initialiser that leaves it out stays right.
 * One that is larger than this library knows is taken if all that it does not know is 0; else
 * -E2BIG. Of those that the library fills, size has to be set: so much is written, with 0 for what
 * this library does not know yet. Structs of which arrays are made, and those that are filled of
 * each sequence, ticket and tensor (coppice_match, coppice_result, coppice_tensor), never change
 * their size: they have no such field, and some have words that are reserved, which must be 0.
 */
#ifndef COPPICE_H
#define COPPICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define COPPICE_MUST_CHECK __attribute__((warn_unused_result))
#define COPPICE_FOREVER UINT64_MAX
#define COPPICE_CONNECT_NS UINT64_C(60000000000) /* the time limit of coppice_connect */
#define COPPICE_SECONDS(seconds) ((uint64_t)((seconds)*UINT64_C(1000000000))) /* also of 0.5 */

struct coppice; /* a connection */
struct coppice_arena;
struct coppice_lane;
struct coppice_seq;
struct coppice_capture;

enum coppice_dtype {
	COPPICE_FP32 = 0,
	COPPICE_FP16 = 1,
	COPPICE_BF16 = 2,
	COPPICE_FP8_E4M3 = 3, /* the fp8 ones are not in this version: a model of them is refused */
	COPPICE_FP8_E5M2 = 4,
};
enum coppice_memory { COPPICE_HOST = 0, COPPICE_DEVICE = 1 };

/* ---- connection ----------------------------------------------------------------------------- */

/* Connects to the daemon's socket: path, or NULL for $COPPICE_SOCKET, else
 * /run/coppice/coppiced.sock. Blocks until the daemon has answered, a minute at most: it may be
 * starting. On failure *ret is NULL and coppice_explain(NULL) has the sentence (of this thread).
 * -ENOENT: there is no such path; -ECONNREFUSED: nobody listens there, or it is a file or a
 * directory and no socket; -EACCES; -EPROTO: another ABI version; -EUSERS: session limit;
 * -ETOOMANYREFS: the daemon can send nobody descriptors now; -ETIMEDOUT. */
COPPICE_MUST_CHECK int coppice_connect(struct coppice **ret, const char *path);
/* The same with a time limit of the app's. */
COPPICE_MUST_CHECK int coppice_connect_timeout(struct coppice **ret, const char *path,
					       uint64_t timeout_ns);
/* Ends the session: lanes, sequences, and arenas that nobody has a reference to (coppice_arena_ref)
 * are freed with it. NULL is fine. Does not block. */
void coppice_close(struct coppice *c);
/* The sentence of this connection's last failure in this thread; c NULL: of the last connect. Never
 * NULL. The library's, until the thread's next failure. */
const char *coppice_explain(const struct coppice *c);
/* The library's, "0.1.0" say; static. */
const char *coppice_version(void);

/* What the daemon has counted of this connection, and of all of them where that is said. */
struct coppice_stats {
	size_t size; /* sizeof(struct coppice_stats), must be set */
	uint64_t session; /* by which coppicectl and the daemon's log know the connection */
	uint32_t n_lanes, n_seqs, n_arenas;
	uint64_t arena_bytes;
	uint64_t n_entries; /* that have completed */
	uint64_t n_decode_steps;
	uint64_t tokens_matched; /* of prompts: found in the store, or waited for */
	uint64_t tokens_computed;
	uint64_t pool_bytes, pool_used_bytes; /* of all connections: memory for KV */
	bool draining; /* the daemon takes no new sequences */
	/* Of weights that were read for its tokens; of a pass that others' tokens had a part in,
	 * its part by rows (coppice_program.h). */
	uint64_t weights_bytes_read;
};

/* Blocks for two messages and their answers. -EINVAL: size is not set. */
COPPICE_MUST_CHECK int coppice_stats(struct coppice *c, struct coppice_stats *ret);

/* ---- model ---------------------------------------------------------------------------------- */

/* What the KV of a model looks like. Sessions that give the same name and the same everything share
 * KV. */
struct coppice_model_info {
	size_t size; /* sizeof(struct coppice_model_info), or 0 */
	const char *name; /* 1 to 127 bytes; copied */
	uint32_t n_layers;
	uint32_t n_q_heads; /* 1 to 128 times n_kv_heads */
	uint32_t n_kv_heads;
	uint32_t head_dim; /* multiple of 16, at most 256 */
	enum coppice_dtype dtype; /* of Q, K, V and O */
	uint32_t page_tokens; /* 16, 32, 64; 0: the daemon's choice */
	float scale; /* of the scores; 0: 1 / sqrt(head_dim) */
	/* of weights, adapters, RoPE scaling: whatever else changes K and V */
	uint64_t weights_hash;
	uint32_t window; /* must be 0: sliding windows are not in this version */
	float soft_cap; /* must be 0 */
	uint32_t n_sinks; /* must be 0 */
	/*
	 * A rank of a tensor-parallel engine: the KV heads that it has, own_kv_heads of the model's
	 * n_kv_heads from first_kv_head on; 0: all. Rows of Q, K, V, O and LSE hold these, and the
	 * query heads that go with them, alone. Ranks share no KV with each other: each has prompts
	 * matched, pending and evicted for itself, so an engine whose ranks differ in match.cached
	 * goes by the least (a prompt opened anew with a token more than that has no more cached).
	 * Where the daemon has several devices and splits models by heads, a rank's KV is on the
	 * one device that would have these heads: best that of the rank itself, where its arena is
	 * (coppice_arena_new_on).
	 */
	uint32_t first_kv_head, own_kv_heads;
};

/* Opens a model. *ret_model is its number in this connection. Blocks for a message and its
 * answer. -EINVAL, -EOPNOTSUPP: the sentence names the field; -ENOSPC: the pool has no room for a
 * page of it. */
COPPICE_MUST_CHECK int coppice_model_open(struct coppice *c, const struct coppice_model_info *info,
					  uint32_t *ret_model);

/* How a model that is open lies in memory. */
struct coppice_model_layout {
	size_t size; /* sizeof(struct coppice_model_layout), must be set */
	uint32_t page_tokens; /* of the store's pages, as the daemon chose */
	uint64_t page_bytes; /* of a page: K and V of page_tokens tokens in all layers */
	/* of a token's row in one layer, where rows follow each other: of q and o, of k and v, of
	 * lse */
	uint32_t q_row_bytes, kv_row_bytes, lse_row_bytes;
};

/* Does not block. -EINVAL: the model is not open on this connection, or size is not set. */
COPPICE_MUST_CHECK int coppice_model_query(struct coppice *c, uint32_t model,
					   struct coppice_model_layout *ret);

/* ---- arenas: memory that both sides see ----------------------------------------------------- */

/*
 * bytes are rounded up to 2 MiB. Blocks for a message and its answer. -EDQUOT: the session's limit,
 * the user's, or the daemon's.
 *
 * COPPICE_HOST: shared memory; nothing of CUDA is needed, whatever the daemon computes with. Blocks
 * until all its pages are there: half a second and more a gigabyte.
 * COPPICE_DEVICE: memory of the daemon's GPU, by CUDA IPC (a shareable handle of the VMM API, which
 * is a descriptor of this memory and no other): a CUDA pointer, usable in the calling
 * thread's context if that is one of the GPU, else in the GPU's primary context, which is that of
 * the CUDA runtime. libcuda.so.1 is looked for here first. -ENODEV: there is no driver, or the
 * daemon's GPU is not among those that this process sees; -EOPNOTSUPP: the daemon computes without
 * a GPU; -EIO: CUDA IPC is refused (coppice_explain has the way out); -ENOMEM: the GPU is full.
 */
COPPICE_MUST_CHECK int coppice_arena_new(struct coppice *c, enum coppice_memory memory,
					 size_t bytes, struct coppice_arena **ret);
/* COPPICE_DEVICE, on one of several devices that the daemon computes with: that of this UUID (16
 * bytes, as cuDeviceGetUuid has it), where the outputs of steps that name the arena are then
 * written by that device itself. Blocks and fails as coppice_arena_new does; -ENODEV: also where
 * the daemon has no such device. */
#define COPPICE_DEVICE_BYTES 16
COPPICE_MUST_CHECK int coppice_arena_new_on(struct coppice *c, const uint8_t *device, size_t bytes,
					    struct coppice_arena **ret);
/* First byte, page aligned, zeroed at birth. */
void *coppice_arena_base(const struct coppice_arena *arena);
/* What was granted: what was asked for, rounded up. */
size_t coppice_arena_bytes(const struct coppice_arena *arena);
enum coppice_memory coppice_arena_memory(const struct coppice_arena *arena);
/*
 * A piece of the arena that no other call has given out: bytes of it, at a multiple of align, a
 * power of two (0: 256, which suits every kernel). Pieces follow each other; they are not given
 * back one by one, but all at once by coppice_arena_reset. Who places tensors by hand from
 * coppice_arena_base does not use this on the same arena. Any thread. Neither blocks. -ENOSPC: so
 * much is not left; -EINVAL: no bytes, or another align.
 */
COPPICE_MUST_CHECK int coppice_arena_alloc(struct coppice_arena *arena, size_t bytes, size_t align,
					   void **ret);
/* All pieces are free again; nobody may use one any more, the daemon's steps included. */
void coppice_arena_reset(struct coppice_arena *arena);
/*
 * Gives it back: from now on no step may name it. Steps in flight that use it end with -ECANCELED,
 * or with -EINVAL where the daemon has not read them yet. Its memory stays mapped here for as long
 * as somebody has a reference; of a device arena the daemon hears only after the last one that it
 * is free, and nothing of the app may be running on it then. Blocks for a message and its answer.
 * NULL is fine.
 */
void coppice_arena_free(struct coppice_arena *arena);
/*
 * A reference keeps the memory mapped, beyond coppice_arena_free and coppice_close: for a language
 * binding whose views of the arena may outlive both. The arena's base and bytes may be asked while
 * there is one. Any thread, but unref not while coppice_close of the connection runs. unref may
 * block for a message and its answer; NULL is fine.
 */
void coppice_arena_ref(struct coppice_arena *arena);
void coppice_arena_unref(struct coppice_arena *arena);

/* ---- lanes: ordered timelines --------------------------------------------------------------- */

/* Blocks for messages and their answers; where the calling thread has a CUDA context, and the
 * device serves several processes at once (MPS), also until kernels are loaded that the
 * context's streams will find ready in the lane. That may wait for all that the context has
 * under way, so nothing of it may be waiting for what the caller has yet to submit; and the
 * context is to be there for as long as the lane. Streams of a lane that was made without a
 * context do the same by slower means. */
COPPICE_MUST_CHECK int coppice_lane_new(struct coppice *c, struct coppice_lane **ret);
/* Frees it and its captures, and closes its sequences, whose handles are gone then. CUDA streams
 * that were used with it must be past all that was put on them (synchronise them; the same before
 * coppice_close). Blocks for messages and their answers. NULL is fine. */
void coppice_lane_free(struct coppice_lane *lane);
/* A descriptor that polls readable when something has completed since coppice_lane_arm. The lane
 * owns it. -1 with a lane from coppice_lane_new; coppice_lane_new_pollable makes one that has
 * it. */
COPPICE_MUST_CHECK int coppice_lane_new_pollable(struct coppice *c, struct coppice_lane **ret);
int coppice_lane_fd(const struct coppice_lane *lane);
/* Drains the descriptor and asks for the next ring of it; then look with coppice_poll once more
 * before sleeping on it. Does not block. */
void coppice_lane_arm(struct coppice_lane *lane);

/* How one ticket ended. */
struct coppice_result {
	uint64_t ticket;
	int status; /* 0 or -errno */
	uint64_t value; /* of coppice_decode, failed or not: how many tokens were published */
	/* of a step: see struct coppice_sparse; 1 where attention was exact */
	float attended, mass;
	/* Where it failed because an earlier entry of its sequence had: that one's ticket, whose
	 * status this one has. Else 0. */
	uint64_t cause;
	uint64_t reserved[2]; /* 0 */
};

/* Has this ticket completed? 0 and its result, or -EAGAIN. A ticket's result stays until 256 more
 * have been submitted (-ESTALE after that). -EINVAL: it was not submitted on this lane;
 * -ECONNRESET: the daemon is known to be gone, whatever the ticket. Does not block. */
int coppice_poll(struct coppice_lane *lane, uint64_t ticket, struct coppice_result *ret);
/* Waits until the ticket has completed; returns its status (0 or -errno, see coppice_explain).
 * -ETIMEDOUT after timeout_ns: the ticket is still in flight. Blocks: spins briefly where cores are
 * free, then sleeps. A status is that of what failed first: see coppice_seq_extend. */
COPPICE_MUST_CHECK int coppice_wait(struct coppice_lane *lane, uint64_t ticket,
				    uint64_t timeout_ns);
/* The sentence of a ticket that failed: which entry it was, what was wrong, which earlier ticket
 * failed first. Of one that did not fail, is in flight or is no longer remembered it says so. Never
 * NULL; the library's, until the thread's next failure. Does not block. */
const char *coppice_explain_ticket(struct coppice_lane *lane, uint64_t ticket);
/* An entry that does nothing: completes behind everything submitted before. Does not block;
 * -EAGAIN: the lane has 256 entries in flight. ret_ticket may be NULL, here and below. */
COPPICE_MUST_CHECK int coppice_nop(struct coppice_lane *lane, uint64_t *ret_ticket);

/* ---- sequences ------------------------------------------------------------------------------ */

/*
 * Where a prompt stands. The first `cached` tokens have their KV in the store: skip them (at most n
 * - 1: the last one is always computed by who asks). The next `pending` ones are being computed by
 * another sequence, or are on their way back from host memory or a file: coppice_seq_wait, or
 * compute them too.
 *
 * claimed: what is not cached is ours to compute, and who opens the same prompt meanwhile finds it
 * pending and may wait for us. There is nothing to do with it but that: extend and step soon, or
 * close the sequence. A claim of which no step has completed for a while (the daemon's claim_ms)
 * passes to one of those who wait. false: what follows the cached tokens is another's to compute,
 * or on its way back.
 */
struct coppice_match {
	uint32_t cached;
	uint32_t pending;
	bool claimed;
};

/* Opens a sequence on a prompt of n >= 1 tokens (copied). salt: 0, or whatever sets apart KV that
 * the ids do not tell (images behind placeholders); sequences share only within a salt. ret_match
 * may be NULL. Blocks for a message and its answer. -E2BIG: longer than the daemon takes; -EUSERS:
 * as many sequences as the session may have; -EDQUOT: its user's prompts that are not computed yet;
 * -ESHUTDOWN: the daemon is draining; -EBUSY: it could not look at the ids for a second, as their
 * pages were swapped out, or it had as many requests of the connection as it takes. */
COPPICE_MUST_CHECK int coppice_seq_open(struct coppice_lane *lane, uint32_t model,
					const uint32_t *tokens, uint32_t n_tokens, uint64_t salt,
					struct coppice_seq **ret, struct coppice_match *ret_match);

/* A prompt of many. Pointers are borrowed during the call. */
struct coppice_prompt {
	uint32_t model;
	uint32_t n_tokens; /* 1 or more */
	const uint32_t *tokens;
	uint64_t salt;
	uint64_t reserved[2]; /* must be 0 */
};

/* Opens n sequences, all or none, in the order of the prompts: one that begins as an earlier one
 * does finds that one's tokens claimed. ret has room for n; ret_matches too, or NULL; where it
 * fails ret has nothing of use. Blocks for their messages, which are on their way together, and
 * their answers. Fails as coppice_seq_open does; the sentence says which prompt. */
COPPICE_MUST_CHECK int coppice_seq_open_many(struct coppice_lane *lane,
					     const struct coppice_prompt *prompts, uint32_t n,
					     struct coppice_seq **ret,
					     struct coppice_match *ret_matches);
/* Waits until nothing is pending any more: it is cached, or (its claimant gone) ours to compute.
 * -ETIMEDOUT with the match as it stands, also after an hour, the daemon's limit; -EBUSY: the
 * sequence is asked about already, or being extended. Where the daemon has not answered two seconds
 * after the time it is -ETIMEDOUT, too, and the sequence stays asked about: call this again, or
 * coppice_seq_wait_poll. ret_match may be NULL. Blocks. */
COPPICE_MUST_CHECK int coppice_seq_wait(struct coppice_seq *seq, uint64_t timeout_ns,
					struct coppice_match *ret_match);
/*
 * The same without blocking: coppice_seq_wait_async asks, coppice_seq_wait_poll looks whether the
 * answer has come. The connection's descriptor polls readable when one may have:
 *
 *      coppice_seq_wait_async(seq, COPPICE_SECONDS(10));
 *      poll() on coppice_fd(c), with whatever else the app waits for
 *      coppice_seq_wait_poll(seq, &match) of each that was asked about
 *
 * One question a sequence at a time (-EBUSY), and until it is answered no tokens, which go behind
 * what is cached (coppice_seq_extend, coppice_seq_draft, coppice_decode: -EBUSY). wait_poll: 0 or
 * -ETIMEDOUT with the match, which ends the question; -EAGAIN: not yet; -EINVAL: nothing was asked.
 * wait_async: -EAGAIN: the daemon has not read what was sent before. Neither blocks.
 */
COPPICE_MUST_CHECK int coppice_seq_wait_async(struct coppice_seq *seq, uint64_t timeout_ns);
COPPICE_MUST_CHECK int coppice_seq_wait_poll(struct coppice_seq *seq,
					     struct coppice_match *ret_match);
/* The connection's, from its first call to its end; not to be read or closed. It may be readable
 * and no question of this thread answered: ask them all. Does not block. -EMFILE, -ENOMEM... */
COPPICE_MUST_CHECK int coppice_fd(struct coppice *c);
/* Tokens that the sequence has, without live ones: those that were cached, and those whose steps
 * are complete in all layers (of a draft: that were accepted). It is what the daemon counts when it
 * comes to the question: wait for a ticket first to have what it did counted. After a failure this
 * is what to trim to. Blocks for a message and its answer. */
COPPICE_MUST_CHECK int coppice_seq_length(struct coppice_seq *seq, uint32_t *ret_n_tokens);
/* Tokens of the extension or draft that is under way: 0 where there is none, or it failed. As
 * above. */
COPPICE_MUST_CHECK int coppice_seq_live(struct coppice_seq *seq, uint32_t *ret_n_live);
/* Gives the pages and the handle back; entries of it still in flight end with -ECANCELED, or with
 * -ESTALE where the daemon has not read them yet. Blocks for a message and its answer. NULL is
 * fine. */
void coppice_seq_close(struct coppice_seq *seq);

/*
 * The next n tokens of the sequence, whose K and V come with the steps that follow, all layers, in
 * order. ids are copied. Their pages are reserved now. Once the last layer's step is done they are
 * everybody's; should there be no memory for that, the sequence has as many tokens as before and
 * its next entry says -ENOMEM, or -EMLINK, as below, where others came meanwhile. At most 32,768
 * tokens (-EINVAL). Does not block; -EAGAIN as coppice_nop.
 *
 * What fails, and what clears it. An extension that fails (-ENOSPC: the pool is full; -EDQUOT;
 * -EMLINK: other sequences leave its path at as many places as may be) leaves the sequence as it
 * was. Nobody has to wait for its ticket: steps that need it end with its status, of several in a
 * row with that of the first, and their sentence names it. The next coppice_seq_extend that
 * succeeds clears it. A step that fails takes the live tokens with it, and every later entry of its
 * sequences ends as it did until coppice_seq_trim, to coppice_seq_length say, which clears it.
 */
COPPICE_MUST_CHECK int coppice_seq_extend(struct coppice_seq *seq, const uint32_t *ids, uint32_t n,
					  uint64_t *ret_ticket);
/*
 * The same for tokens on trial. parents NULL: a chain. Else a tree: token i follows token
 * parents[i] < i of the draft, or (UINT32_MAX) the sequence itself, and sees only its ancestors.
 * They stay private until coppice_seq_accept. At most 32,768 tokens of a chain, 1,024 of a tree
 * (-EINVAL).
 *
 * Row i of a step's o is what token i attends to: the sequence, its ancestors in the draft, and
 * itself. So the logits that come of row i choose the token behind token i, which is to be compared
 * with its children. What follows the sequence itself, of which token 0 and all other roots are
 * guesses, came of the last row before the draft.
 */
COPPICE_MUST_CHECK int coppice_seq_draft(struct coppice_seq *seq, const uint32_t *ids,
					 const uint32_t *parents, uint32_t n, uint64_t *ret_ticket);
/* After the draft's last layer: tokens indices[0] < indices[1] < ..., a path from the sequence on
 * (indices[0] a root, each the parent of the next), stay; the others go. n 0, indices NULL: none is
 * accepted, the sequence is what it was before the draft; that may also come before its last layer.
 * -EINVAL: no such path, or no draft; -EBUSY: layers are missing. */
COPPICE_MUST_CHECK int coppice_seq_accept(struct coppice_seq *seq, const uint32_t *indices,
					  uint32_t n, uint64_t *ret_ticket);
/* Keeps the first n_tokens and drops what is live; also clears what failed (coppice_seq_extend).
 * -EINVAL: it has fewer. */
COPPICE_MUST_CHECK int coppice_seq_trim(struct coppice_seq *seq, uint32_t n_tokens,
					uint64_t *ret_ticket);
/* A second sequence at the same place in the same lane. Blocks until the daemon has answered, and
 * has served all that the lane has in front of it. -EBUSY: it has live tokens; -EUSERS: as many
 * sequences as the session may have; -ESHUTDOWN: the daemon is draining. */
COPPICE_MUST_CHECK int coppice_seq_fork(struct coppice_seq *seq, struct coppice_seq **ret);
/*
 * Prefill that attends to part of its path: steps of more than 16 new tokens read, for each KV head
 * and block_tokens rows, the blocks of the path that together hold tau of attention as an estimate
 * has it (XAttention, arXiv:2503.16428), the first sink_blocks, the last recent_blocks, and those
 * of the rows themselves. Decode and drafts stay exact. Where the path is longer than the pool,
 * blocks have the daemon's stage_block tokens in place of block_tokens, the estimate is made from
 * mean keys of 8, and all rows of a slice have one choice. The result of a step's ticket says which
 * share of the path was attended to by the step's sequences that ask for this, and how much of the
 * estimated mass it holds. KV of later layers follows from it and is shared like any other: open
 * such sequences under a salt of their own, so that nobody who wants exact KV finds theirs.
 */
struct coppice_sparse {
	size_t size; /* sizeof(struct coppice_sparse), or 0 */
	/* up to 1: exact; 0: 0.97, which costs the model of tests/model 0.4 % of its loss */
	double tau;
	uint32_t stride; /* of the estimate, 8 or 16; 0: 8 */
	uint32_t block_tokens; /* a power of two from 8 x stride to 65,536; 0: 128 */
	uint32_t sink_blocks, recent_blocks;
};

/* From here on, forks included. -EOPNOTSUPP of the ticket: the daemon's backend cannot. Does not
 * block; -EAGAIN as coppice_nop. */
COPPICE_MUST_CHECK int coppice_seq_sparse(struct coppice_seq *seq,
					  const struct coppice_sparse *sparse,
					  uint64_t *ret_ticket);
/* Keeps the sequence's tokens from eviction for for_ns, also after its end: 1 to the daemon's
 * max_pin_ms (-EINVAL). *ret_pin is the pin's number, for coppice_unpin; may be NULL. -EUSERS: the
 * user has as many pins as allowed; -EDQUOT: they would keep more of the pool than allowed; -EBUSY,
 * of a sequence longer than the pool: it has an extension, ask again when its tokens are computed.
 * Blocks for a message and its answer. */
COPPICE_MUST_CHECK int coppice_seq_pin(struct coppice_seq *seq, uint64_t for_ns, uint64_t *ret_pin);
/* Ends a pin. -ENOENT: there is none of that number, or not any more. Blocks for a message and its
 * answer. */
COPPICE_MUST_CHECK int coppice_unpin(struct coppice *c, uint64_t pin);

/* ---- steps ---------------------------------------------------------------------------------- */

/*
 * One sequence's part of a step: its n_new live tokens in one layer. Pointers lie in arenas of this
 * connection; q, k, v in one arena, o and lse in one. Row i of q is at q + i * q_stride bytes:
 * [n_q_heads][head_dim] of the model's dtype, of k and v [n_kv_heads][head_dim], of o as q. Stride
 * 0: rows follow each other. lse NULL: not wanted; else fp32 [n_q_heads] a row, natural log of the
 * sum of exp(scaled scores). Pointers are aligned to the dtype, lse to 4.
 */
struct coppice_step_seq {
	struct coppice_seq *seq;
	uint32_t n_new;
	const void *q, *k, *v;
	void *o;
	float *lse;
	uint32_t q_stride, k_stride, v_stride, o_stride, lse_stride; /* in bytes */
	uint32_t pad; /* must be 0, as reserved */
	uint64_t reserved[2];
};

/* One layer of one or more sequences of a lane and model. append_only: K and V are stored, nothing
 * is attended. */
struct coppice_step {
	size_t size; /* sizeof(struct coppice_step), or 0 */
	uint32_t layer;
	const struct coppice_step_seq *seqs;
	uint32_t n_seqs;
	bool append_only;
};

/* Submits; q, k and v must be written already and may not change until the ticket has completed.
 * Does not block; -EAGAIN as coppice_nop. */
COPPICE_MUST_CHECK int coppice_step(struct coppice_lane *lane, const struct coppice_step *step,
				    uint64_t *ret_ticket);

/* The same, and waits until it has completed: first, where the lane has 256 entries in flight, for
 * the oldest of them. Returns its status, or why it was not submitted. *ret_ticket is written as
 * soon as it is submitted, also where -ETIMEDOUT says that it is in flight still; may be NULL.
 * Blocks. */
COPPICE_MUST_CHECK int coppice_step_wait(struct coppice_lane *lane, const struct coppice_step *step,
					 uint64_t timeout_ns, uint64_t *ret_ticket);

/* ---- steps on CUDA streams ------------------------------------------------------------------ */

/*
 * The app's own stream (a CUstream or cudaStream_t) writes q, k and v and waits for o, so that all
 * layers of a token can be queued without the CPU coming back:
 *
 *      coppice_seq_extend(seq, ids, 1, NULL);
 *      for each layer:
 *              launch what writes q, k, v on the stream
 *              coppice_step_on_stream(lane, &step, stream, &ticket);
 *              coppice_wait_on_stream(lane, ticket, stream);
 *              launch what reads o on the stream
 *      cudaStreamSynchronize(stream);
 *      coppice_wait(lane, ticket, ...), and coppice_poll for how the tickets ended
 *
 * Arenas may be of either kind. The stream goes on however a step ends: what it finds in o is to
 * be used only once the ticket's status is known to be 0, some microseconds after the stream has
 * gone on. A lane's steps are of one stream at a time, or of streams that are ordered by events.
 * When the daemon dies, streams that wait go on within 200 ms too, whether the library is called or
 * not. A thread sees to that, one a connection: it begins with its first step on a stream, takes no
 * signals, sleeps until the daemon hangs up, and ends in coppice_close. Under MPS a step costs some
 * 20 us, without it some 300 more, as the GPU goes round between the processes: coppiced(8). Of
 * several clients it costs least where the app launches its kernels early (programmatic stream
 * serialization): then nothing of the stream needs its turn on the GPU's channels between o and the
 * next q, k and v.
 */

/* As coppice_step, but q, k and v are what the stream has written when it comes to this point. Does
 * not block, but for the lane's first time. -ENODEV: no driver; -EIO: CUDA refuses; -EINVAL: also
 * where the stream is being captured; -EMFILE, -EAGAIN: no room for the thread. */
COPPICE_MUST_CHECK int coppice_step_on_stream(struct coppice_lane *lane,
					      const struct coppice_step *step, void *stream,
					      uint64_t *ret_ticket);
/* What is put on the stream after this runs once the ticket's outputs are there, or it has ended
 * without. Does not block; as above. */
COPPICE_MUST_CHECK int coppice_wait_on_stream(struct coppice_lane *lane, uint64_t ticket,
					      void *stream);

/*
 * The same in a CUDA graph that is launched again and again. While the stream is captured,
 * coppice_capture_step and coppice_capture_wait take the place of the calls above; nothing is
 * submitted then. Each launch of the graph needs one coppice_capture_submit, before or after it,
 * and the extensions of the sequences before that:
 *
 *      coppice_capture_new(lane, stream, &capture);
 *      cudaStreamBeginCapture(stream, ...);
 *      for each layer:
 *              ... coppice_capture_step(capture, &step, stream);
 *              coppice_capture_wait(capture, stream); ...
 *      cudaStreamEndCapture(stream, &graph); cudaGraphInstantiate(...)
 *
 *      for each token:
 *              coppice_seq_extend(...);
 *              coppice_capture_submit(capture, NULL, &ticket);
 *              cudaGraphLaunch(...)
 *
 * A graph that is launched and not submitted waits for ever; one submitted and not launched blocks
 * the lane. So check the one before the other. Several launches may be queued ahead, as far as the
 * lane has room.
 */
/* The stream is one that will be captured, and is not yet: what CUDA does not allow during a
 * capture is done here. May block. -ENODEV, -EIO as above. */
COPPICE_MUST_CHECK int coppice_capture_new(struct coppice_lane *lane, void *stream,
					   struct coppice_capture **ret);
/* The step's pointers, layer, numbers of rows and strides are those of every launch; so are its
 * sequences, unless coppice_capture_submit names others. Does not block. -E2BIG: more than 256
 * steps, or records of more than 1 MiB (80 bytes a sequence and step); -ENOSPC: 1,024 captured
 * steps in the lane. */
COPPICE_MUST_CHECK int coppice_capture_step(struct coppice_capture *capture,
					    const struct coppice_step *step, void *stream);
/* What is captured after this runs after all steps captured so far. The last step must be waited
 * for. Does not block. */
COPPICE_MUST_CHECK int coppice_capture_wait(struct coppice_capture *capture, void *stream);
/* Submits all steps for one launch, or none. seqs NULL: those captured; else every step's i-th
 * sequence is seqs[i], with as many live tokens. *ret_ticket: the last step's; the others' are
 * those before it. Does not block. -EAGAIN as coppice_nop: wait for earlier launches. */
COPPICE_MUST_CHECK int coppice_capture_submit(struct coppice_capture *capture,
					      struct coppice_seq *const *seqs,
					      uint64_t *ret_ticket);
/* The graph must not be launched any more and its launches be over. Its lane is there still: who
 * frees that frees its captures. NULL is fine. */
void coppice_capture_free(struct coppice_capture *capture);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
