/*
 * flags.h - the command line: what coppiced itself is asked for, and values of keys.
 *
 * Flags are read first, for the name of the file, and kept; the file is read over the defaults, and
 * the kept flags over that.
 */
#ifndef COPPICED_FLAGS_H
#define COPPICED_FLAGS_H

#include "value.h"

#define FLAGS_DEFAULT_FILE "/etc/coppice/coppiced.conf"

/* All texts are argv's. */
struct flags {
	const char *file; /* NULL: the default one, if it is there */
	const char *values[KEYS_MAX]; /* of keys; NULL: not given */
	bool check_only;
	const char *verify_tier; /* NULL: not asked for */
	bool answered; /* help or version, and it was printed */
};

/* -EINVAL after saying what is no flag of coppiced's. */
MUST_CHECK int flags_parse(struct flags *ret, int argc, char **argv);
/* The kept ones over what the target has. -EINVAL after saying which value is not accepted. */
MUST_CHECK int flags_apply(const struct flags *flags, struct value_target *target);

#endif
