/*
 * daemon_attention.h - attention by coppiced: a step per layer.
 *
 * The arena holds Q, K, V and O of a pass, rows dense:
 *
 *      | q: rows x q heads x d | k: rows x kv heads x d | v: as k | o: as q |
 */
#ifndef AGENT_DAEMON_ATTENTION_H
#define AGENT_DAEMON_ATTENTION_H

#include "attention.h"
#include "daemon.h"

struct daemon_options {
	struct daemon_address address;
	struct coppice_model_info model; /* name must outlive the session */
	uint32_t max_rows;
	uint32_t layer_sleep_us; /* before each layer's step */
};

struct daemon_attention {
	struct attention base;
	struct daemon_options options;
	struct daemon daemon; /* owned: where sequences are opened and extended */
	struct coppice_model_layout layout;
};

/* Connects and makes model, arena and lane. base.run is coppice_step and its wait. Blocks. */
MUST_CHECK int daemon_attention_open(struct daemon_attention *ret,
				     const struct daemon_options *options, struct fault *fault);
/* Its sequences must be closed. A zeroed struct is fine. */
void daemon_attention_close(struct daemon_attention *self);

#endif
