/*
 * stream.h - one sequence that the agent continues: its prompt, its draws, what came of it.
 */
#ifndef AGENT_STREAM_H
#define AGENT_STREAM_H

#include "daemon.h"
#include "client/model/fault.h"
#include "options.h"
#include "sampler.h"

struct stream {
	uint32_t *prompt; /* owned, [n_prompt] */
	uint32_t n_prompt;
	bool is_bytes; /* tokens are bytes of text */
	/* n_prompt = n_cached (found at opening) + n_waited (computed by others meanwhile) +
	 * n_computed (by us). */
	uint32_t n_cached, n_waited, n_computed;
	struct daemon_seq seq;
	struct sampler sampler;
	struct sampler_choice *choices; /* owned, [max_choices] */
	uint32_t n_choices, max_choices;
};

/* Reads prompt index (counted over prompts, then seeds) and makes ready for n_tokens of output.
 * Every id is checked against n_vocab. 0, or -errno and a sentence. */
MUST_CHECK int stream_init(struct stream *stream, const struct options *options, uint32_t index,
			   uint32_t n_vocab, struct fault *fault);
/* A zeroed struct is fine. Closes the sequence if it is open. */
void stream_done(struct stream *stream);
/* Draws the next token from what is known of it. */
const struct sampler_choice *stream_continue(struct stream *stream,
					     const struct sampler_scores *scores);
double stream_logprob_sum(const struct stream *stream);

#endif
