/*
 * numbers.h - small numbers, the lowest free one first.
 *
 *      level 2   [1...............................]
 *      level 1   [01..............][1.............]     a bit says that one is set below it
 *      level 0   [0000][0110][....]                     a set bit is a free number
 *
 * Taking and putting back touch one word of each level at most, and mostly of the lowest alone.
 */
#ifndef COPPICE_KVSTORE_NUMBERS_H
#define COPPICE_KVSTORE_NUMBERS_H

#include "proto/must_check.h"
#include "kvstore/base/prefetch.h"

#include <stdbool.h>
#include <stdint.h>

#define NUMBERS_LEVELS 5u /* for 2^30 numbers */
#define NUMBERS_NONE UINT32_MAX

struct numbers {
	uint64_t *levels[NUMBERS_LEVELS]; /* owned */
	uint32_t n_words[NUMBERS_LEVELS];
	uint32_t low; /* a word of level 0; those before it are zero */
};

void numbers_init(struct numbers *n);
void numbers_done(struct numbers *n);
/* Room for numbers below capacity; they are taken until they are put. -ENOMEM. */
MUST_CHECK int numbers_reserve(struct numbers *n, uint32_t capacity);
/* The lowest free; NUMBERS_NONE: there is none. */
uint32_t numbers_take(struct numbers *n);
void numbers_put(struct numbers *n, uint32_t number);
/* So many from first on, both multiples of 64. */
void numbers_put_run(struct numbers *n, uint32_t first, uint32_t count);
/* The lowest free where that is known at once; else NUMBERS_NONE. */
static inline uint32_t numbers_next(const struct numbers *n)
{
	uint64_t word = n->n_words[0] > 0 ? n->levels[0][n->low] : 0;

	return word ? n->low * 64 + (uint32_t)__builtin_ctzll(word) : NUMBERS_NONE;
}
/* The number is about to be put. */
PREFETCHES void numbers_prefetch(const struct numbers *n, uint32_t number)
{
	__builtin_prefetch(&n->levels[0][number / 64], 1);
}
bool numbers_is_free(const struct numbers *n, uint32_t number);

#endif
