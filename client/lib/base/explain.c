/*
 * explain.c - a handful of sentences for each thread, the least recently written goes first.
 *
 * Nothing is allocated and nothing is shared: a sentence can be kept when memory is out, and stays
 * as it is until its own thread fails again.
 */
#include "explain.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#define N_SENTENCES 4

struct sentence {
	uint64_t key;
	uint64_t written; /* 0: never */
	char text[EXPLAIN_BYTES];
};

static __thread struct {
	uint64_t n_written;
	struct sentence sentences[N_SENTENCES];
} thread;

static struct sentence *find(uint64_t key)
{
	for (int i = 0; i < N_SENTENCES; i++)
		if (thread.sentences[i].written && thread.sentences[i].key == key)
			return &thread.sentences[i];
	return NULL;
}

static struct sentence *oldest(void)
{
	struct sentence *found = &thread.sentences[0];

	for (int i = 1; i < N_SENTENCES; i++)
		if (thread.sentences[i].written < found->written)
			found = &thread.sentences[i];
	return found;
}

int explain(uint64_t key, int code, const char *format, ...)
{
	struct sentence *sentence = find(key);
	va_list args;

	if (!sentence)
		sentence = oldest();
	sentence->key = key;
	sentence->written = ++thread.n_written;
	va_start(args, format);
	vsnprintf(sentence->text, sizeof(sentence->text), format, args);
	va_end(args);
	return code;
}

const char *explain_last(uint64_t key)
{
	const struct sentence *sentence = find(key);

	return sentence ? sentence->text : "nothing has failed in this thread";
}
