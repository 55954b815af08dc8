/*
 * daemon.h - what an app has of coppiced however its layers are computed: a session, a lane, an
 * arena, and sequences.
 *
 * Every wait is cut into slices, between which *stop is looked at: a signal ends any call with
 * -EINTR.
 */
#ifndef AGENT_DAEMON_H
#define AGENT_DAEMON_H

#include "client/coppice.h"
#include "client/model/fault.h"

#include <signal.h>
#include <stdbool.h>

#define DAEMON_SLICE_NS 200000000u /* how long a signal may go unseen */

struct daemon_address {
	const char *socket_path; /* NULL: the library's choice */
	uint64_t salt; /* of its sequences */
	const volatile sig_atomic_t *stop; /* NULL: nothing stops it */
};

struct daemon {
	struct daemon_address address;
	struct coppice *coppice; /* owned, and so are the next two */
	struct coppice_arena *arena; /* NULL until one is made */
	struct coppice_lane *lane;
	uint32_t model; /* whoever opened the daemon sets it */
	uint64_t last_ticket; /* of the newest extension */
};

/* A sequence; what an attention_part's seq points to. */
struct daemon_seq {
	struct coppice_seq *handle; /* owned */
	struct coppice_match match; /* of its prompt, as far as is known */
};

/* Connects and makes a lane. Blocks. 0, or -errno and a sentence. */
MUST_CHECK int daemon_open(struct daemon *ret, const struct daemon_address *address,
			   struct fault *fault);
/* Its sequences must be closed. A zeroed struct is fine. */
void daemon_close(struct daemon *self);

bool daemon_stopped(const struct daemon *self);
/* What went wrong, and what the library says of it. Returns error. */
int daemon_fail(const struct daemon *self, int error, const char *what, struct fault *fault);
int daemon_interrupted(struct fault *fault); /* -EINTR */
/* Until the ticket has completed; what is said if it failed. Blocks. */
MUST_CHECK int daemon_wait(struct daemon *self, uint64_t ticket, const char *what,
			   struct fault *fault);

/* Opens a sequence on a prompt. Blocks. */
MUST_CHECK int daemon_seq_open(struct daemon *self, const uint32_t *ids, uint32_t n,
			       struct daemon_seq *ret, struct fault *fault);
/* Waits until what its match lacks of the prompt is ours to compute. Blocks. */
MUST_CHECK int daemon_seq_wait(struct daemon *self, struct daemon_seq *seq, struct fault *fault);
/* Announces the next n tokens, whose layers the app computes. Blocks only while the lane is
 * full. */
MUST_CHECK int daemon_seq_extend(struct daemon *self, struct daemon_seq *seq, const uint32_t *ids,
				 uint32_t n, struct fault *fault);
/* A zeroed struct is fine. */
void daemon_seq_close(struct daemon_seq *seq);

#endif
