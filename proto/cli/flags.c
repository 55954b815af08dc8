/*
 * flags.c - walks the words of a command line as argp will.
 *
 * An option's value is no option, whatever it looks like: so the walk knows which options take one,
 * and skips it. Words that are not understood here but are no long options are left to argp, which
 * has its own sentences for them.
 */
#include "proto/cli/flags.h"

#include "proto/cli/nearest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const argps_own[] = {"help", "usage", "version"};

#define N_OWN (sizeof(argps_own) / sizeof(*argps_own))

static bool is_end(const struct argp_option *o)
{
	return !o->name && !o->key && !o->doc && !o->group;
}

static bool takes_next(const struct argp_option *o)
{
	return o && o->arg && !(o->flags & OPTION_ARG_OPTIONAL);
}

static const struct argp_option *find_long(const struct argp_option *o, const char *name,
					   size_t length)
{
	for (; !is_end(o); o++) {
		if (o->name && strlen(o->name) == length && memcmp(o->name, name, length) == 0)
			return o;
	}
	return NULL;
}

static const struct argp_option *find_short(const struct argp_option *o, char letter)
{
	for (; !is_end(o); o++) {
		if (o->key == letter)
			return o;
	}
	return NULL;
}

static bool is_argps_own(const char *name, size_t length)
{
	for (size_t i = 0; i < N_OWN; i++) {
		if (strlen(argps_own[i]) == length && memcmp(argps_own[i], name, length) == 0)
			return true;
	}
	return false;
}

static int refuse(const struct argp_option *o, const char *name, size_t length, char *why,
		  size_t bytes)
{
	struct nearest nearest;

	nearest_begin(&nearest, name, length);
	for (; !is_end(o); o++) {
		if (o->name && !(o->flags & OPTION_HIDDEN))
			nearest_offer(&nearest, o->name);
	}
	for (size_t i = 0; i < N_OWN; i++)
		nearest_offer(&nearest, argps_own[i]);
	if (nearest.word)
		snprintf(why, bytes, "--%.*s is no option: did you mean --%s?", (int)length, name,
			 nearest.word);
	else
		snprintf(why, bytes, "--%.40s is no option: see --help", name);
	return -EINVAL;
}

/* Does a cluster of short options (-js) end in one whose value is the next word? */
static bool cluster_takes_next(const struct argp_option *options, const char *cluster)
{
	for (; *cluster; cluster++) {
		if (takes_next(find_short(options, *cluster)))
			return !cluster[1];
	}
	return false;
}

int flags_check(const struct argp_option *options, int argc, char **argv, char *why, size_t bytes)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		const char *name = argv[i] + 2;
		size_t length;
		const struct argp_option *o;

		if (strncmp(argv[i], "--", 2) != 0) {
			i += argv[i][0] == '-' && cluster_takes_next(options, argv[i] + 1);
			continue;
		}
		length = strcspn(name, "=");
		o = find_long(options, name, length);
		if (!o && !is_argps_own(name, length))
			return refuse(options, name, length, why, bytes);
		i += takes_next(o) && !name[length];
	}
	return 0;
}
