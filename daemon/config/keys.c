/*
 * keys.c - one table serves the file, the flags and the help.
 */
#include "keys.h"

#include "proto/cli/nearest.h"

#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define MOST_BYTES (UINT64_C(1) << 50)
#define FIELD(f) .offset = offsetof(struct config, f), .bytes = sizeof(((struct config *)0)->f)
/* As arguments: names of keys are not to be taken for macros of the system's. */
#define ROW(k, n, a, h, ...) {.kind = k, .name = #n, .arg = a, .help = h, __VA_ARGS__},

const struct key keys[] = {
#define SECTION(title) {.kind = KEY_SECTION, .help = title},
#define TEXT(kind, name, field, size, preset, arg, help) ROW(kind, name, arg, help, FIELD(field))
#define WORD(name, field, preset, accepted, help) \
	ROW(KEY_WORD, name, "NAME", help, FIELD(field), .words = accepted)
#define CHOICE(kind, name, type, field, preset, accepted, help) \
	ROW(kind, name, "NAME", help, FIELD(field), .words = accepted)
#define COUNT(name, field, preset, least, most, help) \
	ROW(KEY_COUNT, name, "N", help, FIELD(field), .min = least, .max = most)
#define LONG_COUNT COUNT
#define OCTAL(name, field, preset, most, help) \
	ROW(KEY_OCTAL, name, "MODE", help, FIELD(field), .max = most)
#define SIZE(name, field, preset, least, help) \
	ROW(KEY_SIZE, name, "SIZE", help, FIELD(field), .min = least, .max = MOST_BYTES)
#define SHARE(name, field, help) ROW(KEY_SHARE, name, "SIZE", help, FIELD(field), .max = MOST_BYTES)
#include "keys.def"
};
const size_t keys_n = sizeof(keys) / sizeof(*keys);
_Static_assert(sizeof(keys) / sizeof(*keys) <= KEYS_MAX, "whoever counts keys has room");

const struct key_alias key_aliases[] = {
	{"batch_hold", "batch_window"},
	{"batch_wait_max_us", "batch_window_max_us"},
	{"batch_wait_max", "batch_window_max_us"},
	{"keep_socket", NULL},
	{"guardian_socket", NULL},
};
const size_t key_aliases_n = sizeof(key_aliases) / sizeof(*key_aliases);

static const struct key *find(const char *name)
{
	for (size_t i = 0; i < keys_n; i++) {
		if (keys[i].name && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	}
	return NULL;
}

const struct key *key_find(const char *name, bool *ret_old)
{
	const struct key *key = find(name);

	*ret_old = false;
	for (size_t i = 0; !key && i < key_aliases_n; i++) {
		if (strcmp(key_aliases[i].name, name) == 0) {
			*ret_old = true;
			return key_aliases[i].key ? find(key_aliases[i].key) : NULL;
		}
	}
	return key;
}

const char *key_nearest(const char *typed)
{
	struct nearest nearest;

	nearest_begin(&nearest, typed, strlen(typed));
	for (size_t i = 0; i < keys_n; i++) {
		if (keys[i].name)
			nearest_offer(&nearest, keys[i].name);
	}
	return nearest.word;
}

void key_flag(const char *name, char ret[KEY_FLAG_BYTES])
{
	snprintf(ret, KEY_FLAG_BYTES, "%s", name);
	for (char *c = ret; *c; c++)
		*c = *c == '_' ? '-' : *c;
}
