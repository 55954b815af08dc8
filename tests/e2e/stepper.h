/*
 * stepper.h - a raw client that computes long paths, and fast: of rows that may be all the same.
 */
#ifndef COPPICE_TESTS_STEPPER_H
#define COPPICE_TESTS_STEPPER_H

#include "raw_lane.h"

#define STEPPER_CHUNK 1024u /* tokens of an extension, at most */
#define STEPPER_SEQS 64u /* of a step, at most */

struct stepper {
	struct raw x;
	uint32_t arena;
	uint64_t seq;
	uint32_t n_appended; /* tokens, by stepper_append */
	uint32_t first_id; /* what it extends by is numbered from there */
};

/* With a sequence of which nothing is computed. */
void stepper_start(struct stepper *s, const struct harness *h);
void stepper_end(struct stepper *s);
/* Ids of what follows: without it they are the same for all. */
void stepper_number_from(struct stepper *s, uint32_t first_id);

/* What follows waits, and returns the status: 0 or -errno. */

int stepper_do(struct stepper *s, struct abi_entry entry, const void *body, uint32_t bytes);
/* By n tokens. A draft's are all children of the sequence's end. */
int stepper_extend(struct stepper *s, uint64_t seq, uint32_t n, uint32_t flags);
/* Each of them by n tokens, and each of them n tokens long; all are under way at once. */
int stepper_extend_all(struct stepper *s, const uint64_t *seqs, uint32_t n_seqs, uint32_t n);
int stepper_trim_all(struct stepper *s, const uint64_t *seqs, uint32_t n_seqs, uint32_t n);
/* Both layers of the n_new tokens by which each has been extended. */
int stepper_step(struct stepper *s, const uint64_t *seqs, uint32_t n, uint32_t n_new);
/* Its own sequence is n tokens longer, and nothing is attended to. */
int stepper_append(struct stepper *s, uint32_t n);

#endif
