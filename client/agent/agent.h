/*
 * agent.h - what a run of coppice-agent works with: the prompts, and who computes their tokens.
 */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include "forward_daemon.h"
#include "forward_self.h"
#include "options.h"
#include "stream.h"

#include <limits.h>

struct agent {
	const struct options *options;
	const volatile sig_atomic_t *stop;
	const char *name; /* of the model: borrowed, or in folder */
	char folder[PATH_MAX];
	struct daemon_address address; /* borrows options' path */
	struct forward_limits limits;
	uint32_t n_vocab, max_positions;
	struct forward *forward; /* one of these two */
	struct forward_self self;
	struct forward_daemon daemon;
	struct stream *streams; /* owned, [n_streams] */
	uint32_t n_streams;
	struct forward_part *parts; /* owned, [n_streams] */
	uint64_t wait_ns, prefill_ns, decode_ns; /* wall time */
	uint64_t weights_read_bytes; /* by decode */
	uint64_t told_ns; /* when progress was last told */
};

/* Reads what the model is, and the prompts, and connects to the daemon. options and stop outlive
 * it. Blocks. 0, or -errno and a sentence. */
MUST_CHECK int agent_init(struct agent *agent, const struct options *options,
			  const volatile sig_atomic_t *stop, struct fault *fault);
void agent_done(struct agent *agent);

#endif
