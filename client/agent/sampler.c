/*
 * sampler.c - a draw takes all logits or the likeliest, sorted, cuts off what top_k and top_p leave
 * out, and walks along the rest until as much of their sum is behind it as the generator says.
 *
 * Sums are taken in double and in the order of the sort, in which equal logits stand by their ids,
 * so that a seed draws the same tokens from the same logits.
 */
#include "sampler.h"
#include "proto/arith.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

/* The next 64 random bits. */
static uint64_t sampler_random(struct sampler *sampler)
{
	uint64_t *s = sampler->state;
	const uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

int sampler_init(struct sampler *sampler, const struct sampler_config *config, uint32_t n_vocab)
{
	*sampler = (struct sampler){.config = *config, .n_vocab = n_vocab};
	uint64_t seed = config->seed;
	for (int i = 0; i < 4; i++)
		sampler->state[i] = splitmix64(&seed);
	if (config->temperature == 0)
		return 0;
	sampler->entries = calloc(n_vocab, sizeof(*sampler->entries));
	sampler->weights = calloc(n_vocab, sizeof(*sampler->weights));
	if (sampler->entries && sampler->weights)
		return 0;
	sampler_done(sampler);
	return -ENOMEM;
}

void sampler_done(struct sampler *sampler)
{
	free(sampler->entries);
	free(sampler->weights);
	*sampler = (struct sampler){0};
}

/* The largest logit but that of id except (UINT32_MAX: of all). */
static uint32_t argmax(const float *logits, uint32_t n, uint32_t except)
{
	uint32_t best = except == 0 && n > 1 ? 1 : 0;
	for (uint32_t i = best + 1; i < n; i++)
		if (i != except && logits[i] > logits[best])
			best = i;
	return best;
}

static int by_logit(const void *a, const void *b)
{
	const struct sampler_entry *x = a, *y = b;
	if (x->logit != y->logit)
		return x->logit > y->logit ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* Cuts the n sorted entries to top_k and top_p; weights are left unnormalised. Returns how many
 * stay and their sum. */
static uint32_t cut(struct sampler *sampler, const struct sampler_entry *entries, uint32_t n,
		    double *ret_sum)
{
	const struct sampler_config *c = &sampler->config;
	double all = 0, sum = 0;
	if (c->top_k && c->top_k < n)
		n = c->top_k;
	for (uint32_t i = 0; i < n; i++) {
		const double above = entries[i].logit - entries[0].logit;
		all += sampler->weights[i] = exp(above / c->temperature);
	}
	uint32_t kept = 0;
	while (kept < n && (kept == 0 || sum < c->top_p * all))
		sum += sampler->weights[kept++];
	*ret_sum = sum;
	return kept;
}

static uint32_t draw(struct sampler *sampler, const struct sampler_entry *entries, uint32_t n)
{
	double sum;
	const uint32_t kept = cut(sampler, entries, n, &sum);
	double left = sum * (double)(sampler_random(sampler) >> 11) * 0x1p-53;
	uint32_t i = 0;
	while (i + 1 < kept && left >= sampler->weights[i])
		left -= sampler->weights[i++];
	return entries[i].id;
}

static uint32_t draw_of_all(struct sampler *sampler, const float *logits)
{
	const uint32_t n = sampler->n_vocab;
	for (uint32_t i = 0; i < n; i++)
		sampler->entries[i] = (struct sampler_entry){logits[i], i};
	qsort(sampler->entries, n, sizeof(*sampler->entries), by_logit);
	return draw(sampler, sampler->entries, n);
}

static struct sampler_choice pick_of_all(struct sampler *sampler, const float *logits)
{
	const uint32_t n = sampler->n_vocab, best = argmax(logits, n, UINT32_MAX);
	const uint32_t id = sampler->config.temperature == 0 ? best : draw_of_all(sampler, logits);
	const uint32_t other = id == best ? argmax(logits, n, best) : best;
	double sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += exp((double)logits[i] - logits[best]);
	const double all = logits[best] + log(sum);
	return (struct sampler_choice){
		.id = id,
		.other_id = other,
		.logprob = logits[id] - all,
		.other_logprob = logits[other] - all,
	};
}

static float logit_of(const struct sampler_entry *top, uint32_t id)
{
	while (top->id != id)
		top++;
	return top->logit;
}

static struct sampler_choice pick_of_top(struct sampler *sampler, const struct sampler_scores *s)
{
	const struct sampler_entry *best = &s->top[0], *second = &s->top[s->n_top > 1];
	const uint32_t id =
		sampler->config.temperature == 0 ? best->id : draw(sampler, s->top, s->n_top);
	const struct sampler_entry *other = id == best->id ? second : best;
	return (struct sampler_choice){
		.id = id,
		.other_id = other->id,
		.logprob = logit_of(s->top, id) - s->log_sum,
		.other_logprob = other->logit - s->log_sum,
	};
}

/* The runner-up is told too: two at least. A share of all probability is known of all alone. */
uint32_t sampler_n_top(const struct sampler_config *config, uint32_t most)
{
	if (config->temperature == 0)
		return 2;
	if (config->top_k == 0 || config->top_k > most)
		return 0;
	return max_u32(config->top_k, 2);
}

struct sampler_choice sampler_pick(struct sampler *sampler, const struct sampler_scores *scores)
{
	return scores->logits ? pick_of_all(sampler, scores->logits) : pick_of_top(sampler, scores);
}
