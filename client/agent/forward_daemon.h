/*
 * forward_daemon.h - tokens by the daemon: it holds the weights, and runs the model as a program;
 * this process has a session, tokens, and room for what is said of them.
 */
#ifndef AGENT_FORWARD_DAEMON_H
#define AGENT_FORWARD_DAEMON_H

#include "client/model/coppice_hf.h"
#include "forward.h"
#include "weight_files.h"

struct forward_daemon {
	struct forward base;
	struct coppice_hf_program *program; /* owned, as all that follows */
	struct weight_files files;
	struct daemon daemon;
	struct coppice_weights *weights;
	struct coppice_decode_seq *parts; /* [n_parts] */
	struct sampler_entry *top; /* [n_parts][COPPICE_TOP_MAX] */
	char *out; /* [n_parts] of row_bytes, in the daemon's arena */
	size_t row_bytes;
	uint32_t n_top; /* 0: all logits */
	uint32_t sleep_us; /* before each entry */
};

/* How a program is run. */
struct forward_daemon_options {
	struct daemon_address address;
	uint32_t n_parts; /* of a run, at most */
	uint32_t n_top; /* of the likeliest; 0: all logits */
	uint32_t sleep_us; /* before each entry */
	bool progress; /* of weights that are being loaded: on stderr */
};

/* Reads what the model is, and which files have its weights; kv_dtype NULL: as config.json says. 0,
 * or -errno and a sentence. */
MUST_CHECK int forward_daemon_read(struct forward_daemon *ret, const char *model_dir,
				   const enum coppice_dtype *kv_dtype, struct fault *fault);
/* Connects, and gives the daemon what was read. Blocks until it has the weights. 0; -EOPNOTSUPP and
 * a sentence: it holds no weights, or does not run such a program; or another -errno. */
MUST_CHECK int forward_daemon_open(struct forward_daemon *self,
				   const struct forward_daemon_options *options,
				   struct fault *fault);
/* The same in its parts, one after the other: a session, the weights, the program. */
MUST_CHECK int forward_daemon_connect(struct forward_daemon *self,
				      const struct forward_daemon_options *options,
				      struct fault *fault);
MUST_CHECK int forward_daemon_load(struct forward_daemon *self, bool progress, struct fault *fault);
MUST_CHECK int forward_daemon_make(struct forward_daemon *self, uint32_t n_parts,
				   struct fault *fault);
/* A zeroed struct is fine. */
void forward_daemon_done(struct forward_daemon *self);

#endif
