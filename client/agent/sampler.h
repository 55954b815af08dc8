/*
 * sampler.h - which token comes next: the likeliest, or a seeded draw.
 *
 * Greedy: the largest logit, ties to the lowest id. Sampling: logits / temperature, the top_k
 * largest (ties to the lower id), of these the fewest whose probabilities reach top_p, one draw.
 * The generator is xoshiro256** (Blackman and Vigna, 2018), its state filled by splitmix64 from the
 * seed; the same seed and logits give the same tokens.
 */
#ifndef AGENT_SAMPLER_H
#define AGENT_SAMPLER_H

#include "proto/must_check.h"

#include <stdint.h>

struct sampler_config {
	double temperature; /* 0: greedy */
	uint32_t top_k; /* 0: all */
	double top_p; /* above 0, at most 1 */
	uint64_t seed;
};

struct sampler_entry {
	float logit;
	uint32_t id;
};

/* What is known of a token: all logits; or the likeliest, as sorted as sampler_pick sorts them, and
 * the natural log of the sum of exp(logit) over all. */
struct sampler_scores {
	const float *logits; /* [n_vocab]; NULL: what follows */
	const struct sampler_entry *top; /* [n_top], n_top >= sampler_n_top or all there are */
	uint32_t n_top;
	double log_sum;
};

struct sampler {
	struct sampler_config config;
	uint64_t state[4];
	struct sampler_entry *entries; /* owned, [n_vocab] */
	double *weights; /* owned, [n_vocab] */
	uint32_t n_vocab;
};

/* A token with its natural-log probability under the plain logits (no temperature), and the
 * likeliest other one. */
struct sampler_choice {
	uint32_t id, other_id;
	double logprob, other_logprob;
};

/* From how many of the likeliest, at most `most`, the draws are those from all logits; 0: all are
 * needed. */
uint32_t sampler_n_top(const struct sampler_config *config, uint32_t most);

/* 0 or -ENOMEM. */
MUST_CHECK int sampler_init(struct sampler *sampler, const struct sampler_config *config,
			    uint32_t n_vocab);
void sampler_done(struct sampler *sampler);
struct sampler_choice sampler_pick(struct sampler *sampler, const struct sampler_scores *scores);

#endif
