/*
 * seqs.h - what the verbs seq_open and seq_length take and give, and how much of it may be under
 * way; seq_wait's is in sched/seq/wait.h.
 */
#ifndef COPPICED_SEQS_H
#define COPPICED_SEQS_H

#include "kvstore/store.h"

struct session;

struct seq_open_call {
	uint32_t model, lane;
	uint32_t *tokens; /* owned: malloc's; NULL: the store keeps them */
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

/* What token ids on their way to the scheduler may take beside those that are: of the session's
 * user, and of all users. The loop's thread. */
struct prompt_room {
	uint64_t domain_bytes, all_bytes;
};
struct prompt_room prompt_room(const struct session *session);

#endif
