/*
 * program_oracle.h - the forward pass of a program in float64, one sequence, written for eyes.
 */
#ifndef COPPICE_TESTS_PROGRAM_ORACLE_H
#define COPPICE_TESTS_PROGRAM_ORACLE_H

#include "program_model.h"

/* Of each of n tokens from position 0 on: logits [n_vocab], and what the final norm gives [hidden].
 * What a program rounds to its type (q, k, v and what attention gives) is rounded, and nothing
 * else. Owned by the caller. */
struct program_truth {
	double *logits; /* owned, [n][n_vocab] */
	double *hidden; /* owned, [n][hidden] */
};

struct program_truth program_oracle(const struct program_model *model, const uint32_t *ids,
				    uint32_t n);
/* The same of values that are off by what fp32 is before they are rounded, each by chance: as far
 * as these differ, nothing says which of them is right. */
struct program_truth program_oracle_near(const struct program_model *model, const uint32_t *ids,
					 uint32_t n, struct oracle_random *random);
void program_truth_done(struct program_truth *truth);

#endif
