/*
 * agent.h - what a run of coppice-agent works with: the model, the prompts, the daemon.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "daemon_attention.h"
#include "llama.h"
#include "options.h"
#include "stream.h"

#include <limits.h>

struct agent {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	const char *name; /* of the model: borrowed, or in folder */
	char folder[PATH_MAX];
	struct llama model;
	struct daemon_attention daemon;
	struct llama_pass pass;
	struct stream *streams; /* owned, [n_streams] */
	uint32_t n_streams;
	uint32_t *ids, *positions, *wanted; /* owned, [rows of a pass] */
	struct attention_part *parts; /* owned, [n_streams] */
	float *logits; /* owned, [n_streams][n_vocab] */
	uint64_t wait_ns, prefill_ns, decode_ns; /* wall time */
	uint64_t told_ns; /* when progress was last told */
};

/* Loads the model, reads the prompts and connects to the daemon. options and stop outlive it.
 * Blocks. 0, or -errno and a sentence. */
MUST_CHECK int agent_init(struct agent *agent, const struct options *options,
			  const volatile sig_atomic_t *stop, struct fault *fault);
void agent_done(struct agent *agent);

#endif
