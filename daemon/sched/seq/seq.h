/* seq.h - sequences of sessions: opened and closed by control messages, forked by entries. */
#ifndef COPPICED_SEQ_H
#define COPPICED_SEQ_H

#include "daemon/sched/core/core.h"

struct seq_open {
	struct sched_session *session;
	struct sched_lane *lane;
	struct sched_model *model;
	uint32_t **tokens; /* malloc's; NULL afterwards where the store keeps them. NULL: a fork */
	uint32_t n_tokens;
	uint64_t salt;
};

/* 0, -ENOMEM, or what store_seq_open says. */
MUST_CHECK int seq_open(struct sched_core *core, const struct seq_open *open,
			struct sched_seq **ret, struct store_match *ret_match);
/* The same, as store_seq_fork. */
MUST_CHECK int seq_fork(struct sched_core *core, struct sched_seq *seq, struct sched_seq **ret);
/* Frees it. No step, wait or pace knows of it any more. */
void seq_free(struct sched_core *core, struct sched_seq *seq);
/* What the store's result is to who asked; where: as in an outcome. */
struct outcome outcome_of_store(int r, uint32_t where);
/* Forgets the live extension (the store's side is done). */
void seq_clear_extension(struct sched_seq *seq);
/* The lane's entry `accepted` failed, and entries of the sequence will because of it: the first
 * such is kept. */
void seq_note_failure(struct sched_seq *seq, const struct outcome *outcome);
/* The live extension is gone with that: what depends on it ends as the first failure did, until a
 * trim. */
void seq_void(struct sched_core *core, struct sched_seq *seq, const struct outcome *outcome);
/* How an entry ends that is the where-th to need what the sequence lost by its first failure, of
 * which there is one. */
struct outcome seq_failed_before(const struct sched_seq *seq, uint32_t where);

#endif
