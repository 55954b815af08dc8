/*
 * seqs.h - what the verbs seq_open and seq_length take and give; seq_wait's is in
 * sched/seq/wait.h.
 */
#ifndef COPPICED_SEQS_H
#define COPPICED_SEQS_H

#include "kvstore/store.h"

struct seq_open_call {
	uint32_t model, lane;
	const uint32_t *tokens; /* lent */
	uint32_t n_tokens;
	uint64_t salt;
	/* answered */
	uint64_t seq;
	struct store_match match;
};

struct seq_length_call {
	uint64_t seq;
	uint32_t n_tokens, n_live; /* answered */
};

#endif
