/*
 * agent.h - a run of coppice-agent: load the model, open the prompts, compute what is missing,
 * decode, report.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "daemon_attention.h"
#include "llama.h"
#include "options.h"
#include "stream.h"

struct agent {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	const char *name; /* of the model */
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

/* The whole run; text, ids and report go where options say. Blocks. 0, or -errno and a sentence:
 * -EINTR once *stop is set. */
int agent_run(const struct options *options, const volatile sig_atomic_t *stop,
	      struct fault *fault);

#endif
