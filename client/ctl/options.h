/*
 * options.h - coppicectl's command line: a verb, what it works on, and options.
 */
#ifndef CTL_OPTIONS_H
#define CTL_OPTIONS_H

#include "proto/cli/args.h"
#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

struct ctl;

/* Options as a mask, so that a verb can say which of them it takes. */
enum options_key {
	OPTIONS_FOR = 1u << 0,
	OPTIONS_MODEL = 1u << 1,
	OPTIONS_PAGES = 1u << 2,
	OPTIONS_OFF = 1u << 3,
	OPTIONS_INTERVAL = 1u << 4,
	OPTIONS_COUNT = 1u << 5,
	OPTIONS_DEPTH = 1u << 6,
	OPTIONS_PINNED = 1u << 7,
};

struct options_verb {
	const char *name; /* NULL: help is the headline of those behind it */
	const char *argument; /* what it works on; NULL: nothing */
	unsigned takes; /* mask of enum options_key */
	int (*run)(struct ctl *ctl); /* 0, or -errno with ctl->call.error */
	const char *help;
};

struct options {
	const struct options_verb *verb;
	const char *socket; /* NULL: the default */
	bool json;
	uint64_t argument; /* node or pin */
	unsigned given; /* mask of enum options_key */
	uint64_t for_ns, for_unit_ns; /* and the unit that it was typed in */
	const char *model;
	uint64_t n_pages;
	bool pinned;
	bool off;
	uint64_t interval_ns;
	uint64_t count; /* 0: for ever */
	uint64_t depth; /* if given */
};

extern const struct args_option options_table[];

/* Reads args, which has options_table; verbs ends with a line of zeros. 0; 1 where --help or
 * --version asked for what is printed now; -EINVAL and a sentence in args->why. */
MUST_CHECK int options_read(struct options *options, const struct options_verb *verbs,
			    struct args *args);

#endif
