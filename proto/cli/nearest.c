/*
 * nearest.c - edit distance, three rows of the table at a time.
 *
 *              p  o  o  l
 *           0  1  2  3  4      row i, column j: the edits that make the first i letters typed
 *        p  1  0  1  2  3      into the first j of the word
 *        o  2  1  0  1  2
 *        l  3  2  1  1  1  <-- one
 */
#include "proto/cli/nearest.h"

#include "proto/arith.h"

#include <stdbool.h>
#include <string.h>

#define ROW (NEAREST_WORD_MAX + 1)

/* Row i out of those above it. */
static void row_fill(unsigned rows[3][ROW], const char *typed, size_t i, const char *word)
{
	const unsigned *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
	unsigned *row = rows[i % 3];

	row[0] = (unsigned)i;
	for (size_t j = 1; word[j - 1]; j++) {
		unsigned replace = above[j - 1] + (typed[i - 1] != word[j - 1]);

		row[j] = min_u32(replace, min_u32(above[j], row[j - 1]) + 1);
		if (i > 1 && j > 1 && typed[i - 1] == word[j - 2] && typed[i - 2] == word[j - 1])
			row[j] = min_u32(row[j], above2[j - 2] + 1);
	}
}

static unsigned edits(const char *typed, size_t length, const char *word)
{
	unsigned rows[3][ROW] = {0};
	size_t n = strlen(word);

	for (size_t j = 0; j <= n; j++)
		rows[0][j] = (unsigned)j;
	for (size_t i = 1; i <= length; i++)
		row_fill(rows, typed, i, word);
	return rows[length % 3][n];
}

/* Twice the edits; words that go on where the typed one ends lie between one edit and two. */
static unsigned distance_of(const struct nearest *nearest, const char *word)
{
	unsigned twice = 2 * edits(nearest->typed, nearest->length, word);
	bool goes_on = nearest->length > 1 && strncmp(word, nearest->typed, nearest->length) == 0;

	return goes_on ? min_u32(twice, 3) : twice;
}

void nearest_begin(struct nearest *nearest, const char *typed, size_t length)
{
	unsigned most = length < 6 ? 1 : (unsigned)(length / 3);

	*nearest = (struct nearest){.typed = typed, .length = length, .distance = 2 * most + 2};
}

void nearest_offer(struct nearest *nearest, const char *word)
{
	unsigned distance;

	if (nearest->length == 0 || nearest->length > NEAREST_WORD_MAX ||
	    strlen(word) > NEAREST_WORD_MAX)
		return;
	distance = distance_of(nearest, word);
	if (distance >= nearest->distance)
		return;
	nearest->word = word;
	nearest->distance = distance;
}
