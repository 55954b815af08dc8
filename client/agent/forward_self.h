/*
 * forward_self.h - tokens by this process: weights mapped, layers computed here, a step of the
 * daemon's attention in each.
 */
#ifndef AGENT_FORWARD_SELF_H
#define AGENT_FORWARD_SELF_H

#include "daemon_attention.h"
#include "forward.h"
#include "llama.h"

struct forward_self {
	struct forward base;
	struct llama model; /* owned, as all that follows */
	struct daemon_attention attention;
	struct llama_pass pass;
	struct forward_limits limits;
	uint32_t *ids, *positions; /* [n_rows] */
	uint32_t *wanted; /* [n_parts] */
	struct attention_part *parts; /* [n_parts] */
	float *logits; /* [n_parts][n_vocab] */
	uint64_t weights_read;
};

/* Maps the model's weights. Blocks. 0, or -errno and a sentence. */
MUST_CHECK int forward_self_load(struct forward_self *ret, const char *model_dir,
				 struct fault *fault);
/* Connects, of a model that is loaded. options' model has name and dtype set; the rest comes from
 * the model. Blocks. 0, or -errno and a sentence. */
MUST_CHECK int forward_self_open(struct forward_self *self, const struct daemon_options *options,
				 const struct forward_limits *limits, struct fault *fault);
/* A zeroed struct is fine. */
void forward_self_done(struct forward_self *self);

#endif
