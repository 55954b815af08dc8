/*
 * client.h - one of the processes of coppice-bench clients, and of decode --layers: a session with
 * a lane, an arena and sequences that share a prefix with everybody's.
 *
 * On the pipes: "r" once the prefix is there; it starts on a byte from the parent, after a random
 * moment; "w" when it is warm. It decodes on until the next byte, then from the prefix anew, so
 * that the tails of what is measured are of one length in every run; once warm it takes times.
 * Then, as doubles, the mean length of a sequence's own tail meanwhile and the times. It decodes on
 * until the last byte, so that nobody is ever measured in less company.
 */
#ifndef COPPICE_BENCH_CLIENT_H
#define COPPICE_BENCH_CLIENT_H

#include "client/coppice.h"

#include <stdint.h>

#define CLIENT_MOST_SEQS 2048u
#define CLIENT_MOST_ROWS 4096u

struct client_options {
	uint32_t seqs, prefix, layers, tokens, q_heads, kv_heads, dim;
	/* Of each sequence in a step. 1: it decodes; more: a prompt's, always behind the prefix */
	uint32_t rows;
	uint32_t stagger_ms; /* the moment is drawn from so many */
	enum coppice_memory memory;
};

/* Tokens that each sequence decodes before times are taken. */
static inline uint32_t client_warm_tokens(const struct client_options *o)
{
	return o->tokens / 4;
}

/* How many times there are: of each step; with device memory of each token, all layers being queued
 * at once, by the layer. */
static inline uint32_t client_times(const struct client_options *o)
{
	return (o->tokens - client_warm_tokens(o)) * (o->memory == COPPICE_HOST ? o->layers : 1);
}

_Noreturn void client_main(const struct client_options *options, const char *socket,
			   uint32_t number, int to_parent, int from_parent);

#endif
