/*
 * flags.c - a table of options, made from that of the keys.
 *
 * A key's flag is its name with - for _, a headline is a section of keys.def, and old names are
 * options without help, so that they work and are not offered.
 */
#include "flags.h"

#include "daemon/base/log.h"
#include "proto/cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FLAG_KEYS 256 /* option numbers of keys begin here */
#define FLAG_ALIASES (FLAG_KEYS + (int)KEYS_MAX)
#define FLAG_CHECK 1
#define FLAG_VERIFY_TIER 2
#define FLAG_CONFIG 'c'
#define FLAG_HELP '?'
#define FLAG_VERSION 'V'
#define ALIASES_MAX 8

static const struct args_option own[] = {
	{"config", FLAG_CONFIG, "FILE", "default: " FLAGS_DEFAULT_FILE ", if it is there"},
	{"check-config", FLAG_CHECK, NULL, "read flags and file, say what is wrong, end"},
	{"verify-tier", FLAG_VERIFY_TIER, "FILE",
	 "read a tier file that no daemon uses, say what is wrong in it, end"},
	{"help", FLAG_HELP, NULL, "this text"},
	{"version", FLAG_VERSION, NULL, "the version"},
	{.help = "Each of the following is also a key of the file, with _ for -."},
};

#define N_OWN (sizeof(own) / sizeof(*own))

/* The options, and where the spellings in them lie. */
struct table {
	struct args_option options[N_OWN + KEYS_MAX + ALIASES_MAX + 1]; /* the last is all zero */
	char names[KEYS_MAX + ALIASES_MAX][KEY_FLAG_BYTES];
};

static struct args_option key_option(const struct key *key, int number, char *name)
{
	if (!key->name)
		return (struct args_option){.help = key->help};
	key_flag(key->name, name);
	return (struct args_option){name, number, key->arg, key->help};
}

static void table_init(struct table *t)
{
	struct args_option *o = t->options;

	*t = (struct table){0};
	memcpy(o, own, sizeof(own));
	o += N_OWN;
	for (size_t i = 0; i < keys_n; i++)
		*o++ = key_option(&keys[i], FLAG_KEYS + (int)i, t->names[i]);
	for (size_t i = 0; i < key_aliases_n; i++) {
		char *name = t->names[KEYS_MAX + i];

		key_flag(key_aliases[i].name, name);
		*o++ = (struct args_option){name, FLAG_ALIASES + (int)i, "VALUE", NULL};
	}
}

static void help_print(const struct table *table)
{
	printf("Usage: coppiced [OPTION...]\n"
	       "Serves attention over KV that many processes share.\n\n");
	args_print(stdout, table->options);
}

static void own_read(struct flags *flags, const struct table *table, int option, const char *value)
{
	if (option == FLAG_VERIFY_TIER)
		flags->verify_tier = value;
	else if (option == FLAG_CONFIG)
		flags->file = value;
	else if (option == FLAG_CHECK)
		flags->check_only = true;
	else if (option == FLAG_HELP)
		help_print(table);
	else
		printf("coppiced %s\n", COPPICE_VERSION);
	flags->answered |= option == FLAG_HELP || option == FLAG_VERSION;
}

static void alias_read(struct flags *flags, const struct key_alias *alias, const char *value)
{
	const struct value_origin origin = {0};
	bool old;

	value_warn_old(&origin, alias->name, alias->key);
	if (alias->key)
		flags->values[key_find(alias->key, &old) - keys] = value;
}

int flags_parse(struct flags *ret, int argc, char **argv)
{
	struct table table;
	int option;

	table_init(&table);
	struct args args = args_begin(table.options, argc, argv);

	while ((option = args_next(&args)) > 0 && !ret->answered) {
		if (option == ARGS_WORD) {
			log_error("\"%s\": coppiced takes flags only; see coppiced --help",
				  args.value);
			return -EINVAL;
		}
		if (option >= FLAG_ALIASES)
			alias_read(ret, &key_aliases[option - FLAG_ALIASES], args.value);
		else if (option >= FLAG_KEYS)
			ret->values[option - FLAG_KEYS] = args.value;
		else
			own_read(ret, &table, option, args.value);
	}
	if (option < 0)
		log_error("%s", args.why);
	return option < 0 ? -EINVAL : 0;
}

static int verify_tier_set(struct config *config, const char *path)
{
	if (path[0] && strlen(path) < sizeof(config->verify_tier)) {
		strcpy(config->verify_tier, path);
		return 0;
	}
	log_error("--verify-tier: \"%.80s\" is no path of 1 to %zu bytes", path,
		  sizeof(config->verify_tier) - 1);
	return -EINVAL;
}

int flags_apply(const struct flags *flags, struct value_target *target)
{
	const struct value_origin origin = {0};
	int r = 0;

	for (size_t i = 0; i < keys_n; i++) {
		if (flags->values[i] && value_read(target, &keys[i], flags->values[i], &origin) < 0)
			r = -EINVAL;
	}
	target->config->check_only = flags->check_only;
	if (flags->verify_tier && verify_tier_set(target->config, flags->verify_tier) < 0)
		r = -EINVAL;
	return r;
}
