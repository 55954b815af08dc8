/*
 * options.c - one verb, with options before and behind it.
 *
 * Options are kept as they come; whether the verb takes them is known when all have been read.
 */
#include "options.h"

#include "proto/cli/nearest.h"
#include "proto/clock.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

enum { KEY_FOR = 256, KEY_OFF, KEY_COUNT, KEY_PINNED };

const struct args_option options_table[] = {
	{NULL, 0, NULL, "For every verb:"},
	{"socket", 's', "PATH",
	 "the daemon's socket (default: $COPPICE_SOCKET, else the system's)"},
	{"json", 'j', NULL, "print JSON, an object a line"},
	{NULL, 0, NULL, "For some:"},
	{"model", 'm', "NAME", "tree, evict: of this model alone"},
	{"depth", 'd', "N", "tree: no more than N levels below a model's own line"},
	{"interval", 'i', "TIME", "top: from one look to the next (default: 1s)"},
	{"count", KEY_COUNT, "N", "top: end after N looks, 1 or more (default: it goes on)"},
	{"for", KEY_FOR, "TIME", "pin: how long it holds, as 90s, 10m, 2h or 1d"},
	{"pages", 'n', "N", "evict: stop once N pages are free (default: all that can go)"},
	{"pinned", KEY_PINNED, NULL, "evict: what pins keep too; they end, the oldest first"},
	{"off", KEY_OFF, NULL, "drain: take new work again"},
	{NULL, 0, NULL, "About coppicectl:"},
	{"help", '?', NULL, "print this"},
	{"version", 'V', NULL, "print the version"},
	{0},
};

static const struct {
	int key;
	enum options_key mask;
	const char *name;
} some[] = {
	{KEY_FOR, OPTIONS_FOR, "for"},	     {'m', OPTIONS_MODEL, "model"},
	{'n', OPTIONS_PAGES, "pages"},	     {KEY_OFF, OPTIONS_OFF, "off"},
	{'i', OPTIONS_INTERVAL, "interval"}, {KEY_COUNT, OPTIONS_COUNT, "count"},
	{'d', OPTIONS_DEPTH, "depth"},	     {KEY_PINNED, OPTIONS_PINNED, "pinned"},
};
#define N_SOME (sizeof(some) / sizeof(*some))

/* ---- --help --------------------------------------------------------------------------------- */

static void print_verb(const struct options_verb *verb)
{
	char usage[64];

	snprintf(usage, sizeof(usage), "%s %s%s", verb->name, verb->argument ? verb->argument : "",
		 verb->takes & OPTIONS_FOR ? " --for TIME" : "");
	printf("  %-26s %s\n", usage, verb->help);
}

static void print_help(const struct options_verb *verbs)
{
	puts("Usage: coppicectl [OPTION...] VERB [ARGUMENT]\n"
	     "Looks into a running coppiced, and tells it what to keep, drop and refuse.");
	for (; verbs->help; verbs++) {
		if (verbs->name)
			print_verb(verbs);
		else
			printf("\n%s\n", verbs->help);
	}
	putchar('\n');
	args_print(stdout, options_table);
	puts("\nIt ends with 0, with 1 where coppiced is absent or refuses, with 2 on a bad\n"
	     "command line. coppicectl(1) says what each number means.");
}

/* ---- the verb ------------------------------------------------------------------------------- */

static int fail_unknown_verb(struct args *args, const struct options_verb *verbs, const char *word)
{
	struct nearest nearest;

	nearest_begin(&nearest, word, strlen(word));
	for (; verbs->help; verbs++)
		if (verbs->name)
			nearest_offer(&nearest, verbs->name);
	if (nearest.word)
		return args_fail(args, "there is no verb \"%.40s\": did you mean %s?", word,
				 nearest.word);
	return args_fail(args, "there is no verb \"%.40s\": see --help", word);
}

static int take_verb(struct options *options, const struct options_verb *verbs, struct args *args)
{
	for (const struct options_verb *verb = verbs; verb->help; verb++) {
		if (!verb->name || strcmp(verb->name, args->value) != 0)
			continue;
		options->verb = verb;
		args->name = verb->argument;
		return 0;
	}
	return fail_unknown_verb(args, verbs, args->value);
}

/* A node's or a pin's number. */
static int take_argument(struct options *options, struct args *args, bool *inout_has)
{
	const struct options_verb *verb = options->verb;

	if (!verb->argument || *inout_has)
		return args_fail(args, "%s takes no \"%.40s\"", verb->name, args->value);
	*inout_has = true;
	if (text_parse_u64(args->value, &options->argument) < 0)
		return args_fail(args, "%s is a number, not \"%.40s\"", verb->argument,
				 args->value);
	return 0;
}

static int check_verb(const struct options *options, struct args *args, bool has_argument)
{
	const struct options_verb *verb = options->verb;

	if (!verb)
		return args_fail(args, "a verb is missing, such as status: see --help");
	for (size_t i = 0; i < N_SOME; i++)
		if (options->given & some[i].mask & ~verb->takes)
			return args_fail(args, "%s does not take --%s", verb->name, some[i].name);
	if (verb->argument && !has_argument)
		return args_fail(args, "%s needs a %s", verb->name, verb->argument);
	if ((verb->takes & OPTIONS_FOR) && !(options->given & OPTIONS_FOR))
		return args_fail(args, "%s needs --for TIME, such as --for 10m", verb->name);
	return 0;
}

/* ---- options -------------------------------------------------------------------------------- */

static int take_duration(struct args *args, uint64_t *ret_ns, uint64_t *ret_unit_ns)
{
	if (text_parse_duration(args->value, ret_ns, ret_unit_ns) == 0)
		return 0;
	return args_fail(args, "--%s takes a time such as 90s, 10m, 2h or 1d, not \"%.40s\"",
			 args->name, args->value);
}

static int take_option(struct options *options, int key, struct args *args)
{
	for (size_t i = 0; i < N_SOME; i++)
		if (some[i].key == key)
			options->given |= some[i].mask;
	switch (key) {
	case 's':
		return args_name(args, &options->socket);
	case 'j':
		options->json = true;
		return 0;
	case 'm': /* to evict a model without a name would be to evict all */
		return args_name(args, &options->model);
	case KEY_PINNED:
		options->pinned = true;
		return 0;
	case KEY_OFF:
		options->off = true;
		return 0;
	case KEY_FOR:
		return take_duration(args, &options->for_ns, &options->for_unit_ns);
	case 'i':
		return take_duration(args, &options->interval_ns, NULL);
	case 'n':
		return args_whole(args, 0, UINT64_MAX, &options->n_pages);
	case 'd':
		return args_whole(args, 0, UINT32_MAX, &options->depth);
	default:
		return args_whole(args, 1, UINT64_MAX, &options->count);
	}
}

int options_read(struct options *options, const struct options_verb *verbs, struct args *args)
{
	bool has_argument = false;
	int key, r = 0;

	*options = (struct options){.interval_ns = NS_PER_S};
	while (r == 0 && (key = args_next(args)) != 0) {
		if (key < 0)
			return key;
		if (key == '?') {
			print_help(verbs);
			return 1;
		}
		if (key == 'V') {
			puts("coppicectl " COPPICE_VERSION);
			return 1;
		}
		if (key != ARGS_WORD)
			r = take_option(options, key, args);
		else if (!options->verb)
			r = take_verb(options, verbs, args);
		else
			r = take_argument(options, args, &has_argument);
	}
	return r < 0 ? r : check_verb(options, args, has_argument);
}
