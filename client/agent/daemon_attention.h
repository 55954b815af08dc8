/*
 * daemon_attention.h - attention by coppiced: one session, one lane, one arena; a step per layer.
 *
 * The arena holds Q, K, V and O of a pass, rows dense:
 *
 *      | q: rows x q heads x d | k: rows x kv heads x d | v: as k | o: as q |
 *
 * Every wait is cut into slices, between which *stop is looked at: a signal ends any call with
 * -EINTR.
 */
#ifndef AGENT_DAEMON_ATTENTION_H
#define AGENT_DAEMON_ATTENTION_H

#include "attention.h"

#include <signal.h>

struct daemon_options {
	const char *socket_path; /* NULL: the library's choice */
	struct coppice_model_info model; /* name must outlive the session */
	uint32_t max_rows;
	uint32_t layer_sleep_us; /* before each layer's step */
	uint64_t salt;
	const volatile sig_atomic_t *stop; /* NULL: nothing stops it */
};

struct daemon_attention {
	struct attention base;
	struct daemon_options options;
	struct coppice *coppice; /* owned, and so are the next two */
	struct coppice_arena *arena;
	struct coppice_lane *lane;
	uint32_t model;
	struct coppice_model_layout layout;
	uint64_t last_ticket; /* of the newest extension */
};

/* A sequence; what an attention_part's seq points to. */
struct daemon_seq {
	struct coppice_seq *handle; /* owned */
	struct coppice_match match; /* of its prompt, as far as is known */
};

/* Connects and makes model, arena and lane. base.run is coppice_step and its wait. Blocks. */
MUST_CHECK int daemon_attention_open(struct daemon_attention *ret,
				     const struct daemon_options *options, struct fault *fault);
/* Its sequences must be closed. A zeroed struct is fine. */
void daemon_attention_close(struct daemon_attention *self);

/* Opens a sequence on a prompt. Blocks. */
MUST_CHECK int daemon_seq_open(struct daemon_attention *self, const uint32_t *ids, uint32_t n,
			       struct daemon_seq *ret, struct fault *fault);
/* Waits until what its match lacks of the prompt is ours to compute. Blocks. */
MUST_CHECK int daemon_seq_wait(struct daemon_attention *self, struct daemon_seq *seq,
			       struct fault *fault);
/* Announces the next n tokens. Blocks only while the lane is full. */
MUST_CHECK int daemon_seq_extend(struct daemon_attention *self, struct daemon_seq *seq,
				 const uint32_t *ids, uint32_t n, struct fault *fault);
/* A zeroed struct is fine. */
void daemon_seq_close(struct daemon_seq *seq);

#endif
