/*
 * keys.h - the table of the config's keys, made from keys.def, and the names that keys had.
 */
#ifndef COPPICED_KEYS_H
#define COPPICED_KEYS_H

#include "config.h"

#include <stddef.h>

enum key_kind {
	KEY_SECTION, /* no key, but the title of those that follow */
	KEY_COUNT,
	KEY_SIZE,
	KEY_SHARE,
	KEY_OCTAL,
	KEY_WORD,
	KEY_PATH,
	KEY_DEVICE,
	KEY_DEVICES,
	KEY_SPLIT,
	KEY_RANKS,
	KEY_POLICY,
	KEY_WINDOW
};

struct key {
	enum key_kind kind;
	const char *name; /* in the file; as a flag with - for _. NULL: a section */
	const char *arg; /* for the help */
	const char *help;
	size_t offset, bytes; /* of the field */
	uint64_t min, max; /* numbers */
	const char *words; /* that are accepted, each followed by a space */
};

#define KEY_FLAG_BYTES 32
#define KEYS_MAX 96u

/* In the order of keys.def, N of them. */
extern const struct key keys[];
extern const size_t keys_n;

/* A name that a key had once. */
struct key_alias {
	const char *name; /* with _, as a flag with - */
	const char *key; /* now; NULL: there is none any more, and a value says nothing */
};
extern const struct key_alias key_aliases[];
extern const size_t key_aliases_n;

/* NULL: there is none. An old name finds the key that it is now, if it is one: *ret_old then says
 * so. */
const struct key *key_find(const char *name, bool *ret_old);
/* The key whose name is most like the one typed; NULL: none is like it. */
const char *key_nearest(const char *typed);
/* A key's spelling as a flag, without --. */
void key_flag(const char *name, char ret[KEY_FLAG_BYTES]);

#endif
