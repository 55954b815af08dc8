/*
 * abi.h - what lies in memory shared between coppiced and its clients. PROTOCOL.md has the
 * pictures.
 *
 * Two kinds of segment, both memfds that the daemon makes, sealed against growing, shrinking and
 * holes:
 *  - one board for the whole daemon (struct abi_board): only the daemon writes; clients can map it
 *    read-only alone;
 *  - one segment per lane (struct abi_lane): a submission ring and an entry arena that the client
 *    writes, a completion ring that the daemon writes, and a few words, each with one writer, on
 *    lines of their own.
 * Fixed-width fields, explicit padding, asserted offsets. `version` is published last, with
 * release: who reads it with acquire and finds ABI_VERSION may read everything else. The client is
 * not trusted: the daemon copies once, checks the copy, uses the copy, and keeps its own indices
 * elsewhere.
 */
#ifndef COPPICE_ABI_H
#define COPPICE_ABI_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define ABI_VERSION 7u
#define ABI_BOARD_MAGIC UINT64_C(0x6472616f62706f63) /* "copboard" */
#define ABI_LANE_MAGIC UINT64_C(0x656e616c2d706f63) /* "cop-lane" */

#define ABI_BOARD_BYTES 4096u
#define ABI_LANE_SLOTS 256u /* entries in flight in a lane; a power of two */
#define ABI_BODY_ARENA_BYTES (1u << 20)
#define ABI_BODY_MAX_BYTES (1u << 18) /* of one entry */
#define ABI_NO_OFFSET UINT64_MAX
#define ABI_LANE_WORDS 1024u /* pairs of words for steps captured in graphs */
/* Of a lane: all that streams touch. */
#define ABI_LANE_HEAD_BYTES (640u + 16u * ABI_LANE_WORDS)
/* In `done`: the daemon is dead, nobody is to wait any more. Streams compare cyclically: all ones
 * would hold them. */
#define ABI_RELEASED (UINT64_C(1) << 62)

#define ABI_LINE _Alignas(128) /* two lines: the neighbour is prefetched */

/* Daemon -> all clients. asleep: 1 while the scheduler sleeps; a client that has published an entry
 * and finds 1 rings its session's doorbell. */
struct abi_board {
	uint64_t magic;
	_Atomic uint32_t version;
	uint32_t daemon_pid;
	uint64_t generation; /* differs from daemon start to daemon start */
	ABI_LINE _Atomic uint32_t asleep;
	uint32_t pad0;
	/* how long waiting clients should spin: 0 when cores are scarce */
	ABI_LINE _Atomic uint32_t client_spin_us;
	uint32_t pad1;
};
static_assert(offsetof(struct abi_board, asleep) == 128, "board layout");
static_assert(offsetof(struct abi_board, client_spin_us) == 256, "board layout");
static_assert(sizeof(struct abi_board) <= ABI_BOARD_BYTES, "board layout");

enum abi_kind {
	ABI_NOP = 0,
	ABI_STEP = 1, /* body: struct abi_step_seq[count] */
	ABI_EXTEND = 2, /* body: ids u32[count], then with ABI_EXTEND_PARENTS parents u32[count] */
	ABI_ACCEPT = 3, /* body: indices u32[count]; count 0 drops the draft */
	ABI_TRIM = 4, /* arg: tokens to keep */
	ABI_FORK = 5, /* completion value: the new handle */
	ABI_SPARSE = 6, /* body: struct abi_sparse */
	/* body: struct abi_decode, struct abi_decode_seq[count], then ids u32 of all of them, with
	 * ABI_EXTEND_PARENTS then as many parents */
	ABI_DECODE = 7,
	ABI_N_KINDS
};

enum abi_entry_flags {
	ABI_EXTEND_DRAFT = 1u << 0, /* tokens wait for ABI_ACCEPT */
	/* a draft tree; implies ABI_EXTEND_DRAFT. Of ABI_DECODE: all its sequences' tokens are */
	ABI_EXTEND_PARENTS = 1u << 1,
	ABI_STEP_APPEND_ONLY = 1u << 2, /* K and V only, no attention */
	ABI_STEP_STREAM = 1u << 3, /* a stream writes the inputs: runs once `ready` >= ticket */
	/* the same by the pair of words number arg, for replayed graphs */
	ABI_STEP_WORDS = 1u << 4,
	/* with ABI_STEP_STREAM: the device may write the ticket at arg of device arena seq, as it
	 * ends the step */
	ABI_STEP_TELL = 1u << 5,
};

/* An entry; slot (ticket - 1) % ABI_LANE_SLOTS. Tickets count from 1. */
struct abi_entry {
	uint64_t ticket;
	uint32_t kind;
	uint32_t flags;
	uint64_t seq; /* extend, accept, trim, fork; step with ABI_STEP_TELL */
	uint64_t arg; /* trim; step with ABI_STEP_WORDS or ABI_STEP_TELL */
	uint32_t layer; /* step */
	uint32_t count;
	uint32_t body; /* offset in the body arena, multiple of 8 */
	uint32_t body_bytes;
	uint64_t cancelled; /* decode: 0, and its ticket once it is to end before its time */
	uint64_t reserved; /* 0 */
};
static_assert(sizeof(struct abi_entry) == 64, "one line");

/* One sequence of a step. Offsets and strides in bytes; row i of Q at q + i * q_stride:
 * [n_q_heads][head_dim]. lse: fp32 [n_q_heads] a row, or ABI_NO_OFFSET. n_new is the length of the
 * sequence's live extension. */
struct abi_step_seq {
	uint64_t seq;
	uint64_t q, k, v; /* in arena_in */
	uint64_t o, lse; /* in arena_out */
	uint32_t q_stride, k_stride, v_stride, o_stride, lse_stride;
	uint32_t n_new;
	uint32_t arena_in, arena_out;
};
static_assert(sizeof(struct abi_step_seq) == 80, "step layout");

/* How prefill of a sequence, from here on, attends to its path: blocks are chosen by an estimate of
 * their share of attention. */
struct abi_sparse {
	double tau; /* share of the estimated mass to attend to, above 0; 1: to everything */
	uint32_t stride; /* of the estimate: 8 or 16 */
	uint32_t block_tokens; /* a power of two, 8 x stride to 65,536 */
	uint32_t sink_blocks, recent_blocks; /* the first and the last, always attended to */
};
static_assert(sizeof(struct abi_sparse) == 24, "sparse layout");

/* Tokens of sequences whose model the daemon runs: they are appended, run and published, chunk by
 * chunk. Of the rows that are wanted, in order of sequences, one struct abi_row each, stride apart,
 * from out in arena on. */
#define ABI_DECODE_ROWS_MAX 256u
#define ABI_TOP_MAX 64u
enum abi_want {
	ABI_WANT_TOP = 1u << 0,
	ABI_WANT_SCORE = 1u << 1,
	ABI_WANT_LOGITS = 1u << 2, /* behind the struct: fp32 [n_vocab] */
	ABI_WANT_HIDDEN = 1u << 3, /* then: fp32 [hidden] */
};
struct abi_decode {
	uint64_t out;
	uint32_t arena, stride;
	uint32_t want; /* 0: no row is */
	uint32_t n_top;
};
static_assert(sizeof(struct abi_decode) == 24, "decode layout");

/* Rows first_wanted and on of n_new are wanted. */
struct abi_decode_seq {
	uint64_t seq;
	uint32_t n_new, first_wanted;
};
static_assert(sizeof(struct abi_decode_seq) == 16, "decode layout");

#define ABI_DECODE_DRAFT_MAX 64u /* tokens of a sequence */

struct abi_row {
	float lse; /* natural log of the sum of exp(logit) */
	float score; /* log-probability of the token behind it in the entry; NaN: there is none */
	uint32_t n_top;
	uint32_t reserved; /* 0 */
	struct {
		uint32_t id;
		float logit;
	} top[ABI_TOP_MAX]; /* likeliest first; alike: the lower id */
};
static_assert(sizeof(struct abi_row) == 16 + 8 * ABI_TOP_MAX, "row layout");

/* Why an entry failed: the client library has a sentence for each. where: in a step, index of the
 * offending sequence. */
enum abi_reason {
	ABI_OK = 0,
	ABI_BAD_KIND,
	ABI_BAD_TICKET,
	ABI_BAD_BODY, /* body out of range, misaligned, or of the wrong size */
	ABI_BAD_FLAGS,
	ABI_NO_TOKENS,
	ABI_TOO_MANY_TOKENS,
	ABI_STALE_SEQ, /* handle closed, never given, or another session's */
	ABI_WRONG_LANE, /* the sequence belongs to another lane */
	ABI_SEQ_TWICE, /* twice in one step */
	ABI_MIXED_MODELS, /* sequences of several models in one step */
	ABI_WRONG_LAYER, /* layers ascend by one from 0 within an extension */
	ABI_WRONG_COUNT, /* n_new is not the extension's length */
	ABI_NOT_EXTENDED, /* step or accept without an extension */
	ABI_STILL_EXTENDED, /* extend while layers of the last extension are missing */
	ABI_NOT_ACCEPTED, /* extend while a draft awaits its accept */
	ABI_NOT_DRAFT, /* accept of tokens that were no draft */
	ABI_BAD_INDICES,
	ABI_BAD_PARENTS,
	ABI_BAD_ARENA, /* no such arena in this session */
	ABI_OUT_OF_ARENA, /* rows reach beyond the arena */
	ABI_MISALIGNED,
	ABI_NO_ROOM, /* KV pool full, nothing left to evict */
	ABI_OVER_QUOTA,
	ABI_VOID, /* the daemon tells of what failed first instead: struct abi_completion, cause */
	ABI_TOO_LONG, /* trim beyond the end */
	ABI_TOO_MANY_SEQS,
	ABI_DRAINING, /* fork while the daemon drains */
	ABI_SESSION_ENDED,
	ABI_BACKEND_FAILED,
	ABI_NO_MEMORY,
	ABI_BAD_WORD, /* no such pair of words */
	ABI_BAD_SPARSE, /* tau, stride or block_tokens out of range */
	ABI_NO_SPARSE, /* the backend cannot estimate */
	ABI_TOO_MANY_PROMPTS, /* fork: ids of prompts that are not computed take too much */
	ABI_NO_PROGRAM, /* decode of a sequence that its sessions compute */
	ABI_HAS_PROGRAM, /* step or extend of one that the daemon computes */
	ABI_BAD_TOKEN, /* an id beyond the vocabulary */
	ABI_TOO_FAR, /* more tokens than the model has positions */
	ABI_BAD_WANT, /* nothing or too much of a row */
	ABI_TOO_MANY_ROWS, /* of which something is wanted */
	ABI_TOO_MANY_NODES, /* of a path: where others leave it */
	ABI_CANCELLED, /* as its client wishes: abi_entry.cancelled */
	ABI_N_REASONS
};

struct abi_completion {
	uint64_t ticket;
	int32_t status; /* 0 or -errno */
	uint16_t reason; /* enum abi_reason */
	uint16_t where;
	union {
		uint64_t value; /* of an entry that succeeded: a fork's new handle */
		/* Of one that failed because of an earlier entry of its sequence: that one's
		 * ticket, whose status and reason it has. 0: it failed by itself. */
		uint64_t cause;
	};
	union {
		/* Of a step that succeeded: the share of its path that prefill attended to, and of
		 * the estimated mass in it; 1 where attention was exact. */
		struct {
			float attended, mass;
		};
		uint64_t published; /* tokens, of a decode that failed: its first */
	};
};
static_assert(sizeof(struct abi_completion) == 32, "half a line");
static_assert(offsetof(struct abi_completion, cause) == 16 &&
		      offsetof(struct abi_completion, published) == 24,
	      "completion layout");

struct abi_lane {
	uint64_t magic;
	_Atomic uint32_t version;
	uint32_t lane;
	uint64_t generation;
	uint64_t bytes; /* of the whole segment */

	/* client writes */
	ABI_LINE _Atomic uint64_t submitted; /* tickets published: entries 1..submitted are there */
	/* its stream writes it: inputs of steps with ABI_STEP_STREAM up to this ticket are there */
	ABI_LINE _Atomic uint64_t ready;
	ABI_LINE _Atomic uint32_t sleepers; /* client threads that sleep on done */
	/* 1: the completion descriptor is wanted; the daemon takes it back to 0 when it rings */
	_Atomic uint32_t notify;

	/* The daemon writes these. */
	/* tickets completed, in order; its low half is the clients' futex */
	ABI_LINE _Atomic uint64_t done;
	/* tickets that are done, or in a moment: a device is at the step, or at a decode's end */
	_Atomic uint64_t soon;

	/* Handed over and back, step by step: the client's stream writes 1 into ready_words[i], the
	 * daemon takes it back to 0 and later writes 1 into done_words[i], which the stream takes
	 * back to 0. */
	ABI_LINE _Atomic uint64_t ready_words[ABI_LANE_WORDS];
	ABI_LINE _Atomic uint64_t done_words[ABI_LANE_WORDS];

	ABI_LINE struct abi_entry entries[ABI_LANE_SLOTS];
	ABI_LINE struct abi_completion completions[ABI_LANE_SLOTS];
	ABI_LINE uint8_t bodies[ABI_BODY_ARENA_BYTES];
};
static_assert(offsetof(struct abi_lane, submitted) == 128, "lane layout");
static_assert(offsetof(struct abi_lane, ready) == 256, "lane layout");
static_assert(offsetof(struct abi_lane, sleepers) == 384, "lane layout");
static_assert(offsetof(struct abi_lane, done) == 512, "lane layout");
static_assert(offsetof(struct abi_lane, soon) == 520, "lane layout");
static_assert(offsetof(struct abi_lane, ready_words) == 640, "lane layout");
static_assert(offsetof(struct abi_lane, done_words) == 640 + 8 * ABI_LANE_WORDS, "lane layout");
static_assert(offsetof(struct abi_lane, entries) == ABI_LANE_HEAD_BYTES, "lane layout");
static_assert(offsetof(struct abi_lane, completions) == ABI_LANE_HEAD_BYTES + 64 * ABI_LANE_SLOTS,
	      "lane layout");
static_assert(offsetof(struct abi_lane, bodies) == ABI_LANE_HEAD_BYTES + 96 * ABI_LANE_SLOTS,
	      "lane layout");

#endif
