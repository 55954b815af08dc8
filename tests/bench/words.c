/* words.c - a value among words, by a copy of these in which each ends with a NUL. See words.h. */
#include "words.h"

#include "proto/cli/nearest.h"

#include <assert.h>
#include <string.h>

#define WORDS_MAX 16u
#define WORDS_BYTES 192u

struct words {
	char text[WORDS_BYTES];
	const char *words[WORDS_MAX]; /* in text */
	uint32_t n;
};

static void words_init(struct words *w, const char *words)
{
	char *rest = w->text, *word;

	assert(strlen(words) < sizeof(w->text));
	strcpy(w->text, words);
	w->n = 0;
	while ((word = strsep(&rest, ", ")) != NULL) {
		if (!*word)
			continue;
		assert(w->n < WORDS_MAX);
		w->words[w->n++] = word;
	}
}

/* "a, b or c" */
static void words_list(const struct words *w, char *ret, size_t bytes)
{
	size_t at = 0;

	for (uint32_t i = 0; i < w->n && at < bytes; i++) {
		const char *before = i == 0 ? "" : i + 1 < w->n ? ", " : " or ";

		at += (size_t)snprintf(ret + at, bytes - at, "%s%s", before, w->words[i]);
	}
}

static int words_refuse(struct args *args, const struct words *w)
{
	char list[ARGS_WHY_BYTES] = "";
	struct nearest nearest;

	nearest_begin(&nearest, args->value, strlen(args->value));
	for (uint32_t i = 0; i < w->n; i++)
		nearest_offer(&nearest, w->words[i]);
	if (nearest.word && *args->value)
		return args_fail(args, "--%s takes no \"%.40s\": did you mean %s?", args->name,
				 args->value, nearest.word);
	words_list(w, list, sizeof(list));
	return args_fail(args, "--%s takes %s, not \"%.40s\"", args->name, list, args->value);
}

int words_take_place(struct args *args, const char *words, uint32_t *ret)
{
	struct words w;

	words_init(&w, words);
	for (uint32_t i = 0; i < w.n; i++) {
		if (strcmp(args->value, w.words[i]) != 0)
			continue;
		*ret = i;
		return 0;
	}
	return words_refuse(args, &w);
}

int words_take(struct args *args, const char *words, const char **ret)
{
	uint32_t place;
	int r = words_take_place(args, words, &place);

	if (r == 0)
		*ret = args->value;
	return r;
}
