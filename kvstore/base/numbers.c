/*
 * numbers.c - a tree of bits, 64 to a word.
 *
 * A word of a level has a bit set in the level above exactly if it is not zero, so that the lowest
 * bit of each level leads to the lowest free number.
 */
#include "numbers.h"
#include "proto/arith.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void numbers_init(struct numbers *n)
{
	*n = (struct numbers){0};
}

void numbers_done(struct numbers *n)
{
	for (uint32_t i = 0; i < NUMBERS_LEVELS; i++)
		free(n->levels[i]);
}

static int level_reserve(struct numbers *n, uint32_t level, uint32_t n_words)
{
	if (n_words <= n->n_words[level])
		return 0;
	uint64_t *words = realloc(n->levels[level], n_words * sizeof(*words));
	if (!words)
		return -ENOMEM;
	memset(words + n->n_words[level], 0, (n_words - n->n_words[level]) * sizeof(*words));
	n->levels[level] = words;
	n->n_words[level] = n_words;
	return 0;
}

int numbers_reserve(struct numbers *n, uint32_t capacity)
{
	uint32_t n_words = capacity;
	int r = 0;

	for (uint32_t level = 0; level < NUMBERS_LEVELS && !r; level++) {
		n_words = ceil_div(n_words, 64);
		r = level_reserve(n, level, n_words);
	}
	return r;
}

/* The lowest word of level 0 that is not zero; there is one. */
static uint32_t word_find(const struct numbers *n)
{
	uint32_t at = 0;

	for (uint32_t level = NUMBERS_LEVELS; level-- > 1;)
		at = at * 64 + (uint32_t)__builtin_ctzll(n->levels[level][at]);
	return at;
}

/* A word of level 0 has become zero. */
static void word_empty(struct numbers *n, uint32_t at)
{
	for (uint32_t level = 1; level < NUMBERS_LEVELS; level++, at /= 64) {
		uint64_t *word = &n->levels[level][at / 64];
		*word &= ~(UINT64_C(1) << at % 64);
		if (*word != 0)
			break;
	}
}

/* Returns what the word with this bit was. */
static inline uint64_t bit_set(struct numbers *n, uint32_t level, uint32_t bit)
{
	uint64_t *word = &n->levels[level][bit / 64], was = *word;

	*word = was | UINT64_C(1) << bit % 64;
	return was;
}

/* A word of a level, which was zero, is so no more. */
static void word_fill(struct numbers *n, uint32_t level, uint32_t at)
{
	while (++level < NUMBERS_LEVELS && bit_set(n, level, at) == 0)
		at /= 64;
}

uint32_t numbers_take(struct numbers *n)
{
	if (n->n_words[NUMBERS_LEVELS - 1] == 0)
		return NUMBERS_NONE;
	if (n->levels[0][n->low] == 0) {
		if (n->levels[NUMBERS_LEVELS - 1][0] == 0)
			return NUMBERS_NONE;
		n->low = word_find(n);
	}
	uint64_t *word = &n->levels[0][n->low];
	uint32_t number = n->low * 64 + (uint32_t)__builtin_ctzll(*word);
	*word &= *word - 1;
	if (*word == 0)
		word_empty(n, n->low);
	return number;
}

void numbers_put(struct numbers *n, uint32_t number)
{
	uint32_t at = number / 64;

	assert(at < n->n_words[0]);
	bit_set(n, 0, number);
	if (at < n->low)
		n->low = at;
	/* Whether the word was zero before nobody can foresee, but whether those above were. */
	if (bit_set(n, 1, at) == 0)
		word_fill(n, 1, at / 64);
}

void numbers_put_run(struct numbers *n, uint32_t first, uint32_t count)
{
	assert(first % 64 == 0 && count % 64 == 0);
	for (uint32_t at = first / 64; at < (first + count) / 64; at++) {
		numbers_put(n, at * 64);
		n->levels[0][at] = UINT64_MAX;
	}
}

bool numbers_is_free(const struct numbers *n, uint32_t number)
{
	return number / 64 < n->n_words[0] && n->levels[0][number / 64] >> number % 64 & 1;
}
