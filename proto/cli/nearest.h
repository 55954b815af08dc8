/*
 * nearest.h - which of some words somebody meant who typed another: "did you mean pool?"
 *
 * The nearest by edit distance (insert, delete, replace, swap of neighbours: Damerau 1964,
 * restricted), if it is near enough: a third of the typed word's letters may be wrong, one at
 * least. A word that begins with what was typed is near, too: who types less means more.
 */
#ifndef COPPICE_CLI_NEAREST_H
#define COPPICE_CLI_NEAREST_H

#include <stddef.h>

#define NEAREST_WORD_MAX 63

struct nearest {
	const char *typed; /* borrowed */
	size_t length; /* of it that counts */
	const char *word; /* borrowed: the nearest so far; NULL: none is near */
	unsigned distance; /* its; nearest.c */
};

/* The first length bytes of typed; a longer word than NEAREST_WORD_MAX is near to none. */
void nearest_begin(struct nearest *nearest, const char *typed, size_t length);
void nearest_offer(struct nearest *nearest, const char *word);

#endif
