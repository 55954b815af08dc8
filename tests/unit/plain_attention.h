/*
 * plain_attention.h - attention by the book over KV in a flat array: what the daemon's is measured
 * against.
 */
#ifndef PLAIN_ATTENTION_H
#define PLAIN_ATTENTION_H

#include "client/agent/attention.h"
#include "client/agent/llama.h"

/* One sequence's KV, [layer][max_tokens][kv heads][head_dim]. What an attention_part's seq points
 * to. */
struct plain_seq {
	float *k, *v; /* owned */
	uint32_t *n_tokens; /* owned, [n_layers] */
	uint32_t max_tokens;
};

struct plain_attention {
	struct attention base;
	const struct llama *model;
	float *row; /* owned */
};

void plain_attention_init(struct plain_attention *self, const struct llama *model,
			  enum coppice_dtype dtype, uint32_t max_rows);
void plain_attention_done(struct plain_attention *self);
void plain_seq_init(struct plain_seq *seq, const struct llama *model, uint32_t max_tokens);
void plain_seq_done(struct plain_seq *seq);

#endif
