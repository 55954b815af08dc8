/*
 * options.c - coppicectl's command line by argp.
 */
#include "options.h"

#include "text.h"

#include <argp.h>
#include <string.h>

#define KEY_FOR 256
#define KEY_OFF 257
#define KEY_COUNT 258

struct parse {
	struct options *options;
	const struct options_verb *verbs;
	const char *argument;
};

static const struct argp_option options_table[] = {
	{"socket", 's', "PATH", 0, "The daemon's socket ($COPPICE_SOCKET, else the default)", 0},
	{"json", 'j', NULL, 0, "Print JSON, one object a line", 0},
	{"for", KEY_FOR, "TIME", 0, "pin: how long (90s, 10m, 2h, 1d)", 1},
	{"model", 'm', "NAME", 0, "evict: of this model alone", 1},
	{"pages", 'n', "N", 0, "evict: at most so many pages (all that can go)", 1},
	{"off", KEY_OFF, NULL, 0, "drain: take new work again", 1},
	{"interval", 'i', "TIME", 0, "top: time between two looks (1s)", 1},
	{"count", KEY_COUNT, "N", 0, "top: end after so many looks", 1},
	{0}};

static const struct {
	int key;
	enum options_key mask;
	const char *name;
} options_names[] = {
	{KEY_FOR, OPTIONS_FOR, "--for"},       {'m', OPTIONS_MODEL, "--model"},
	{'n', OPTIONS_PAGES, "--pages"},       {KEY_OFF, OPTIONS_OFF, "--off"},
	{'i', OPTIONS_INTERVAL, "--interval"}, {KEY_COUNT, OPTIONS_COUNT, "--count"},
};
#define N_NAMES (sizeof(options_names) / sizeof(options_names[0]))

static void read_duration(struct argp_state *state, const char *name, const char *arg,
			  uint64_t *ret_ns)
{
	if (text_parse_duration(arg, ret_ns) < 0)
		argp_error(state, "%s takes a time such as 90s, 10m, 2h or 1d, not \"%s\"", name,
			   arg);
}

static void read_number(struct argp_state *state, const char *name, const char *arg, uint64_t *ret)
{
	if (text_parse_u64(arg, ret) < 0)
		argp_error(state, "%s takes a whole number, not \"%s\"", name, arg);
}

static const struct options_verb *find_verb(const struct options_verb *verbs, const char *name)
{
	for (; verbs->name; verbs++)
		if (strcmp(verbs->name, name) == 0)
			return verbs;
	return NULL;
}

static void read_word(struct argp_state *state, struct parse *parse, const char *word)
{
	struct options *options = parse->options;

	if (!options->verb) {
		options->verb = find_verb(parse->verbs, word);
		if (!options->verb)
			argp_error(state, "there is no verb \"%s\"", word);
		return;
	}
	if (!options->verb->argument || parse->argument)
		argp_error(state, "%s takes no \"%s\"", options->verb->name, word);
	parse->argument = word;
}

static void check_verb(struct argp_state *state, struct parse *parse)
{
	struct options *options = parse->options;
	const struct options_verb *verb = options->verb;

	if (!verb)
		argp_error(state, "a verb is missing");
	for (size_t i = 0; i < N_NAMES; i++)
		if (options->given & options_names[i].mask & ~verb->takes)
			argp_error(state, "%s does not take %s", verb->name, options_names[i].name);
	if (verb->argument && !parse->argument)
		argp_error(state, "%s needs a %s", verb->name, verb->argument);
	if (verb->argument)
		read_number(state, verb->argument, parse->argument, &options->argument);
	if ((verb->takes & OPTIONS_FOR) && !(options->given & OPTIONS_FOR))
		argp_error(state, "%s needs --for TIME", verb->name);
}

static error_t parse_key(int key, char *arg, struct argp_state *state)
{
	struct parse *parse = state->input;
	struct options *options = parse->options;

	for (size_t i = 0; i < N_NAMES; i++)
		if (options_names[i].key == key)
			options->given |= options_names[i].mask;
	switch (key) {
	case 's':
		options->socket = arg;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case KEY_FOR:
		read_duration(state, "--for", arg, &options->for_ns);
		return 0;
	case 'm':
		options->model = arg;
		return 0;
	case 'n':
		read_number(state, "--pages", arg, &options->n_pages);
		return 0;
	case KEY_OFF:
		options->off = true;
		return 0;
	case 'i':
		read_duration(state, "--interval", arg, &options->interval_ns);
		return 0;
	case KEY_COUNT:
		read_number(state, "--count", arg, &options->count);
		return 0;
	case ARGP_KEY_ARG:
		read_word(state, parse, arg);
		return 0;
	case ARGP_KEY_END:
		check_verb(state, parse);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void options_read(struct options *options, const struct options_verb *verbs, int argc, char **argv)
{
	static const struct argp argp = {
		.options = options_table,
		.parser = parse_key,
		.args_doc = "status\ntree\nsessions\nmodels\ntop\npin NODE --for TIME\nunpin PIN\n"
			    "evict [--model NAME] [--pages N]\ndrain [--off]",
		.doc = "Looks into a running coppiced and tells it what to keep, drop and refuse.",
	};
	struct parse parse = {.options = options, .verbs = verbs};

	*options = (struct options){.interval_ns = UINT64_C(1000000000)};
	argp_err_exit_status = 2;
	argp_program_version = "coppicectl " COPPICE_VERSION;
	argp_parse(&argp, argc, argv, 0, NULL, &parse);
}
