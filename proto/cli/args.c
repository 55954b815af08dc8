/*
 * args.c - options and words of a command line, one after the other.
 *
 * An option's value is no option, whatever it looks like: --name --pool gives a name that begins
 * with two dashes. Options may stand before, between and behind words.
 */
#include "proto/cli/args.h"

#include "proto/cli/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

static const struct args_option *find_short(const struct args_option *option, char letter)
{
	for (; !is_end(option); option++) {
		if (option->name && option->key == letter)
			return option;
	}
	return NULL;
}

struct args args_begin(const struct args_option *table, int argc, char **argv)
{
	return (struct args){.table = table, .argc = argc, .at = 1, .argv = argv};
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

/* The option is at hand; attached is the value in its own word, if there is one. */
static int take(struct args *a, const struct args_option *option, const char *attached)
{
	a->name = option->name;
	a->value = attached;
	if (!option->arg)
		return attached ? args_fail(a, "--%s takes no value", option->name) : option->key;
	if (!attached && a->at < a->argc)
		a->value = a->argv[a->at++];
	if (!a->value)
		return args_fail(a, "--%s lacks its %s", option->name, option->arg);
	return option->key;
}

static int next_long(struct args *a, const char *name)
{
	size_t length = strcspn(name, "=");
	const struct args_option *option = find_long(a->table, name, length);

	if (!option)
		return fail_unknown(a, name, length);
	return take(a, option, name[length] ? name + length + 1 : NULL);
}

/* Of a word such as -js, whose last option may have its value behind it: -jsPATH. */
static int next_short(struct args *a)
{
	const char *rest = a->cluster + 1;
	const struct args_option *option = find_short(a->table, *a->cluster);

	if (!option)
		return args_fail(a, "-%c is no option: see --help", *a->cluster);
	a->cluster = option->arg || !*rest ? NULL : rest;
	return take(a, option, option->arg && *rest ? rest : NULL);
}

int args_next(struct args *a)
{
	const char *word;

	if (a->cluster)
		return next_short(a);
	if (a->at < a->argc && !a->words_alone && strcmp(a->argv[a->at], "--") == 0) {
		a->words_alone = true;
		a->at++;
	}
	if (a->at >= a->argc)
		return 0;
	word = a->argv[a->at++];
	if (!a->words_alone && word[0] == '-' && word[1]) {
		a->cluster = word[1] == '-' ? NULL : word + 1;
		return a->cluster ? next_short(a) : next_long(a, word + 2);
	}
	a->value = word;
	return ARGS_WORD;
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
