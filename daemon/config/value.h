/*
 * value.h - a key's value read from text, and what is said where it cannot be.
 */
#ifndef COPPICED_VALUE_H
#define COPPICED_VALUE_H

#include "proto/must_check.h"
#include "keys.h"

/* Where a value was found, for the messages. */
struct value_origin {
	const char *file; /* NULL: a flag */
	unsigned line;
};

/* What is being read: into which config, and the units in which sizes were typed (units.h), a key
 * each, so that errors can be said in them. */
struct value_target {
	struct config *config; /* borrowed */
	char units[KEYS_MAX];
};

/* Sets the key's field. -EINVAL after saying where it stands, that it is not accepted, and what
 * is. */
MUST_CHECK int value_read(struct value_target *target, const struct key *key, const char *text,
			  const struct value_origin *origin);
/* A key was found under a name that it had once. */
void value_warn_old(const struct value_origin *origin, const char *old, const char *name);
/* The unit in which a key's size was typed, for size_text; 0: it was not. */
char value_unit(const struct value_target *target, const char *key);

#endif
