/*
 * tiers.h - the store's lower tiers as the daemon has them: host memory that the backend can reach,
 * and a file.
 *
 * A tier that cannot be had is said in the log and left out: the daemon works without it. The
 * scheduler's thread alone, but for sched_tiers_attach (before it is there) and sched_tiers_flush
 * (after).
 */
#ifndef COPPICED_TIERS_H
#define COPPICED_TIERS_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

struct config;
struct sched;

struct sched_tiers {
	bool on; /* the store has host memory, and the file if that is well */
	bool busy; /* something is under way or waits to be */
	bool logged_error; /* the log has it that nothing is written any more */
	bool logged_journal; /* the log has it that the file's journal is full */
	uint64_t logged_altered; /* the log has it that so many pages came back altered */
	uint64_t log_ns; /* not before: the next time that this is said */
};

/* Gives the new store the tiers that the configuration names. Blocks. */
void sched_tiers_attach(struct sched *s);
/* To be called in every round: what has ended takes effect, what is next begins. Does not block. */
void sched_tiers_poll(struct sched *s);
/* When to poll at the latest; UINT64_MAX: when there is something else to do. */
uint64_t sched_tiers_deadline_ns(const struct sched *s);
/* What is not in the file yet goes there, for as long as the configuration allows. Blocks. */
void sched_tiers_flush(struct sched *s);

/* --verify-tier: says on stdout what is in config->verify_tier. The exit status: 0, 1: it cannot be
 * read, or some of it is not what was written. Blocks. */
MUST_CHECK int tiers_verify(const struct config *config);

#endif
