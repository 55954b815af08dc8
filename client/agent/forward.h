/*
 * forward.h - the seam between a run and whoever computes its tokens: this process, layer by layer
 * with the daemon's attention (forward_self.h), or the daemon, by a program (forward_daemon.h).
 */
#ifndef AGENT_FORWARD_H
#define AGENT_FORWARD_H

#include "daemon.h"
#include "sampler.h"

/* The next n_rows tokens of a sequence, of which the first stands at position. */
struct forward_part {
	struct daemon_seq *seq;
	const uint32_t *ids;
	uint32_t position, n_rows;
};

struct forward {
	const char *layers; /* "self" or "daemon" */
	const char *isa; /* this process's; NULL: it multiplies nothing */
	struct daemon *daemon; /* where sequences are opened; the implementation's */
	enum coppice_dtype kv_dtype;
	uint64_t kv_bytes_per_token;
	uint64_t weights_bytes; /* of the model's files */
	bool holds_weights; /* in this process */
	/* Appends and computes the parts' tokens; of the last one of each part scores are known
	 * afterwards, if they are wanted. Blocks. 0, or -errno and a sentence. */
	int (*run)(struct forward *self, const struct forward_part *parts, uint32_t n_parts,
		   bool wanted, struct fault *fault);
	/* Of a part of the newest run; holds until the next one. */
	struct sampler_scores (*scores)(const struct forward *self, uint32_t part);
	/* Bytes of weights that were read for this process's tokens so far; of what others' tokens
	 * had a part in, this one's part. Blocks. */
	int (*weights_read)(struct forward *self, uint64_t *ret, struct fault *fault);
};

/* Of runs: at most so many parts with so many rows each and in all. */
struct forward_limits {
	uint32_t n_parts, n_rows;
};

#endif
