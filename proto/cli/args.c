/*
 * args.c - options and words of a command line, one after the other, as getopt_long finds them; but
 * long options are spelled in full, and what is wrong is a sentence.
 *
 * An option's value is no option, whatever it looks like: --name --pool gives a name that begins
 * with two dashes. Options may stand before, between and behind words.
 */
#include "proto/cli/args.h"

#include "proto/cli/nearest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SHIFT 1024 /* of long options' keys, which are told from letters and from ? so */
#define WORD 1 /* getopt's key of a word that is no option, where options begin with - */

static bool is_end(const struct args_option *option)
{
	return !option->name && !option->help;
}

static const struct args_option *find_long(const struct args_option *option, const char *name,
					   size_t length)
{
	for (; !is_end(option); option++) {
		if (option->name && strlen(option->name) == length &&
		    memcmp(option->name, name, length) == 0)
			return option;
	}
	return NULL;
}

static const struct args_option *find_key(const struct args_option *option, int key)
{
	for (; !is_end(option); option++) {
		if (option->name && option->key == key)
			return option;
	}
	return NULL;
}

/* As getopt has it: 0, 1, or 2 where the value may be left out. */
static int value_of(const struct args_option *option)
{
	if (!option->arg)
		return no_argument;
	return option->arg[0] == '[' ? optional_argument : required_argument;
}

struct args args_begin(const struct args_option *table, int argc, char **argv)
{
	struct args a = {.table = table, .argc = argc, .argv = argv};
	struct option *to = a.longs;
	/* Words come in their order as key 1; a value that is missing is told from no option. */
	char *letter = stpcpy(a.shorts, "-:");

	for (const struct args_option *option = table; !is_end(option); option++) {
		if (!option->name)
			continue;
		assert(to - a.longs < ARGS_MAX && option->key < KEY_SHIFT);
		*to++ = (struct option){option->name, value_of(option), NULL,
					option->key + KEY_SHIFT};
		if (args_is_short(option))
			letter += sprintf(letter, "%c%.*s", option->key, value_of(option), "::");
	}
	optind = 0; /* glibc: begin anew */
	opterr = 0;
	return a;
}

int args_fail(struct args *a, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(a->why, sizeof(a->why), format, args);
	va_end(args);
	return -EINVAL;
}

static int fail_unknown(struct args *a, const char *name, size_t length)
{
	int shown = length < 40 ? (int)length : 40;
	struct nearest nearest;

	nearest_begin(&nearest, name, length);
	for (const struct args_option *option = a->table; !is_end(option); option++) {
		if (option->name && option->help)
			nearest_offer(&nearest, option->name);
	}
	if (nearest.word)
		return args_fail(a, "--%.*s is no option: did you mean --%s?", shown, name,
				 nearest.word);
	return args_fail(a, "--%.*s is no option: see --help", shown, name);
}

/* The next word is a long option that is not spelled in full, or none at all: getopt_long would
 * take a beginning for the whole. */
static int check_spelling(struct args *a)
{
	int at = optind ? optind : 1;
	const char *word = at < a->argc ? a->argv[at] : "";
	size_t length;

	if (strncmp(word, "--", 2) != 0 || !word[2])
		return 0;
	length = strcspn(word + 2, "=");
	return find_long(a->table, word + 2, length) ? 0 : fail_unknown(a, word + 2, length);
}

/* What getopt_long says of an option that is none, or whose value is one too many or too few. */
static int fail_option(struct args *a, int said)
{
	const struct args_option *option =
		find_key(a->table, optopt > KEY_SHIFT ? optopt - KEY_SHIFT : optopt);

	if (!option)
		return args_fail(a, "-%c is no option: see --help", optopt);
	if (said == ':')
		return args_fail(a, "--%s lacks its %s", option->name, option->arg);
	return args_fail(a, "--%s takes no value", option->name);
}

static int word_next(struct args *a)
{
	if (optind >= a->argc)
		return 0;
	a->value = a->argv[optind++];
	return ARGS_WORD;
}

int args_next(struct args *a)
{
	int key;

	if (a->words_alone)
		return word_next(a);
	if (check_spelling(a) < 0)
		return -EINVAL;
	optopt = 0;
	key = getopt_long(a->argc, a->argv, a->shorts, a->longs, NULL);
	if (key == ':' || (key == '?' && optopt))
		return fail_option(a, key);
	a->value = optarg;
	if (key == WORD)
		return ARGS_WORD;
	if (key == -1) {
		a->words_alone = true;
		return word_next(a);
	}
	key -= key > KEY_SHIFT ? KEY_SHIFT : 0;
	a->name = find_key(a->table, key)->name;
	return key;
}

int args_name(struct args *a, const char **ret)
{
	if (!*a->value)
		return args_fail(a, "--%s has no name behind it", a->name);
	*ret = a->value;
	return 0;
}

int args_whole(struct args *a, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(a->value, &end, 10);
	if (isdigit((unsigned char)a->value[0]) && !errno && !*end && n >= min && n <= max) {
		*ret = n;
		return 0;
	}
	if (max == UINT64_MAX)
		return args_fail(a, "--%s takes a whole number from %" PRIu64 ", not \"%.40s\"",
				 a->name, min, a->value);
	return args_fail(a,
			 "--%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not \"%.40s\"",
			 a->name, min, max, a->value);
}
