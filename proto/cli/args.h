/*
 * args.h - a command line, read word by word by getopt_long: the same way in every program.
 *
 *	struct args args = args_begin(table, argc, argv);
 *
 *	while ((key = args_next(&args)) > 0)
 *		... args.value ...
 *	if (key < 0)
 *		... args.why ...
 *
 * Long options are spelled in full. If --po stood for --pool where no other begins so, a typo would
 * do something, and a script would break when an option comes along that begins the same way.
 */
#ifndef COPPICE_CLI_ARGS_H
#define COPPICE_CLI_ARGS_H

#include "proto/must_check.h"

#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define ARGS_WHY_BYTES 256
#define ARGS_MAX 128 /* options of a table */
#define ARGS_WORD INT_MAX /* the key of a word that is no option */

/* A line of a table, which ends with a line of zeros. */
struct args_option {
	const char *name; /* without its dashes; NULL: help is the headline of those behind it */
	int key; /* above 0; that of a letter, a digit or ? is a short spelling too */
	/* what its value is called; NULL: it takes none; in brackets: it may be left out, and is
	 * written behind = where it is not */
	const char *arg;
	const char *help; /* NULL: an old name, which works and is told to nobody */
};

/* Its key is a short spelling too. */
static inline bool args_is_short(const struct args_option *option)
{
	return option->key < 128 && (isalnum(option->key) || option->key == '?');
}

struct args {
	const struct args_option *table; /* borrowed, as are all pointers here */
	int argc;
	char **argv;
	struct option longs[ARGS_MAX + 1]; /* the table as getopt_long wants it */
	char shorts[3 * ARGS_MAX + 3];
	bool words_alone; /* behind -- */
	const char *name; /* of the option at hand, without its dashes */
	const char *value; /* of the option at hand, or the word; NULL: the option has none */
	char why[ARGS_WHY_BYTES]; /* a sentence without its full stop */
};

/* getopt_long has one state: one command line is read at a time. */
struct args args_begin(const struct args_option *table, int argc, char **argv);

/* The key of the next option, or ARGS_WORD; 0 at the end. -EINVAL and a sentence in why, such as
 * "--po is no option: did you mean --pool?". */
MUST_CHECK int args_next(struct args *a);

/* Writes the sentence and returns -EINVAL. */
MUST_CHECK int args_fail(struct args *a, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The value at hand, that may not be empty. 0, or -EINVAL and a sentence in why. */
MUST_CHECK int args_name(struct args *a, const char **ret);

/* The value at hand as a whole number from min to max. 0, or -EINVAL and a sentence in why. */
MUST_CHECK int args_whole(struct args *a, uint64_t min, uint64_t max, uint64_t *ret);

/* For people, in 80 columns: a paragraph; the table in its own order. */
void args_print_text(FILE *to, const char *text);
void args_print(FILE *to, const struct args_option *table);

#endif
