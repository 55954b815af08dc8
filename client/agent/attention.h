/*
 * attention.h - the seam between the forward pass and whoever keeps the KV: in the agent the daemon
 * (daemon_attention.h).
 *
 * The forward pass writes a layer's Q, K and V of all its rows, calls run, and finds O.
 */
#ifndef AGENT_ATTENTION_H
#define AGENT_ATTENTION_H

#include "client/coppice.h"
#include "client/model/fault.h"

/* n_rows consecutive rows of a pass: the live tokens of one sequence. seq is the implementation's
 * own. */
struct attention_part {
	void *seq;
	uint32_t n_rows;
};

struct attention {
	enum coppice_dtype dtype; /* of q, k, v and o */
	uint32_t max_rows;
	/* [max_rows][heads][head_dim], dense; the implementation's memory. */
	void *q, *k, *v, *o;
	/* Stores K and V of the rows and fills O: every row sees its sequence's tokens up to and
	 * with its own. The parts cover rows 0, 1, ... in order. Blocks. 0, or -errno and a
	 * sentence. */
	int (*run)(struct attention *self, uint32_t layer, const struct attention_part *parts,
		   uint32_t n_parts, struct fault *fault);
};

#endif
