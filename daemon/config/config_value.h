/*
 * config_value.h - what a key of the config is, and a value of it read from text.
 */
#ifndef COPPICED_CONFIG_VALUE_H
#define COPPICED_CONFIG_VALUE_H

#include "config.h"

enum key_kind {
	KEY_COUNT,
	KEY_SIZE,
	KEY_POOL,
	KEY_OCTAL,
	KEY_CHOICE,
	KEY_PATH,
	KEY_DEVICE,
	KEY_DEVICES,
	KEY_SPLIT,
	KEY_RANKS,
	KEY_POLICY,
	KEY_HOLD
};

struct key {
	const char *name; /* in the file; as a flag with - for _ */
	const char *flag; /* where the flag is called otherwise */
	const char *arg; /* for the help */
	const char *help;
	enum key_kind kind;
	uint32_t offset, bytes; /* of the field */
	uint64_t min, max; /* numbers */
	const char *choices; /* words, each followed by a space */
};

/* Where a value was found, for the messages. */
struct place {
	const char *file; /* NULL: a flag */
	unsigned line;
};

/* Sets the key's field. -EINVAL after saying where it stands, that it is not accepted, and what
 * is. */
int value_read(struct config *config, const struct key *key, const char *text,
	       const struct place *place);

#endif
