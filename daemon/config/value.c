/*
 * value.c - from text to a field, and from a key to a sentence.
 *
 * What a value may be is in the key alone: the check and the error are both made from it, so that
 * no message can promise what is then refused.
 */
#include "value.h"

#include "daemon/base/log.h"
#include "daemon/base/units.h"
#include "kernels/group/exchange.h"
#include "kernels/group/group.h"
#include "lists.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static int number_parse(const char *text, int base, uint64_t *ret, const char **ret_end)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, base);
	*ret_end = end;
	return errno ? -errno : 0;
}

/* A number and at most one of K, M, G, T (binary, either case). */
static int size_parse(const char *text, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	const char *end, *suffix;
	uint64_t n;
	unsigned shift = 0;

	if (number_parse(text, 10, &n, &end) < 0)
		return -EINVAL;
	if (*end) {
		suffix = strchr(suffixes, *end & ~0x20);
		if (!suffix || !*suffix || end[1])
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
	}
	if (n > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = n << shift;
	return 0;
}

/* A share: 1% to 100%. */
static int percent_parse(const char *text, uint64_t *ret)
{
	const char *end;

	if (number_parse(text, 10, ret, &end) < 0 || strcmp(end, "%") != 0)
		return -EINVAL;
	return *ret >= 1 && *ret <= 100 ? 0 : -ERANGE;
}

static int number_set(struct config *config, const struct key *key, const char *text)
{
	void *field = (char *)config + key->offset;
	const char *end = "";
	uint64_t n;
	int r;

	if (key->kind == KEY_SIZE || key->kind == KEY_SHARE)
		r = size_parse(text, &n);
	else
		r = number_parse(text, key->kind == KEY_OCTAL ? 8 : 10, &n, &end);
	if (r < 0 || *end || n < key->min || n > key->max)
		return -EINVAL;
	if (key->bytes == sizeof(uint64_t))
		*(uint64_t *)field = n;
	else
		*(uint32_t *)field = (uint32_t)n;
	return 0;
}

/* The one undoes the other, which the file may have said. */
static int pool_set(struct config *config, const struct key *key, const char *text)
{
	uint64_t percent = 0;
	int r = 0;

	if (strchr(text, '%'))
		r = percent_parse(text, &percent);
	if (r == 0)
		r = number_set(config, key, percent ? "0" : text);
	if (r == 0)
		config->pool_percent = (uint32_t)percent;
	return r;
}

/* Index of a word among the key's, or -EINVAL. */
static int word_index(const struct key *key, const char *text)
{
	size_t length = strlen(text);
	int index = 0;

	for (const char *c = key->words; *c; c = strchr(c, ' ') + 1, index++) {
		if (length > 0 && strncmp(c, text, length) == 0 && c[length] == ' ')
			return index;
	}
	return -EINVAL;
}

static int word_set(struct config *config, const struct key *key, const char *text)
{
	int index = word_index(key, text);

	if (index < 0)
		return index;
	if (key->kind == KEY_WINDOW)
		config->batch_window = (enum config_window)index;
	else if (key->kind == KEY_POLICY)
		return plan_policy_parse(text, &config->policy);
	else
		snprintf((char *)config + key->offset, key->bytes, "%s", text);
	return 0;
}

static int path_set(struct config *config, const struct key *key, const char *text)
{
	if (*text != '/' && strncmp(text, "./", 2) != 0)
		return -EINVAL;
	if (strlen(text) >= key->bytes)
		return -ENAMETOOLONG;
	strcpy((char *)config + key->offset, text);
	return 0;
}

static int device_set(struct config *config, const struct key *key, const char *text)
{
	if (!text[0] || strlen(text) >= key->bytes)
		return -EINVAL;
	strcpy((char *)config + key->offset, text);
	return 0;
}

static bool list_is_valid(enum key_kind kind, const char *text)
{
	uint32_t n;
	bool cpu;

	if (kind == KEY_SPLIT)
		return list_is_splits(text);
	if (!*text)
		return true;
	return (kind == KEY_RANKS ? list_ranks(text, &n) : list_devices(text, &n, &cpu)) == 0;
}

static int list_set(struct config *config, const struct key *key, const char *text)
{
	if (strlen(text) >= key->bytes || !list_is_valid(key->kind, text))
		return -EINVAL;
	strcpy((char *)config + key->offset, text);
	return 0;
}

static int value_set(struct config *config, const struct key *key, const char *text)
{
	switch (key->kind) {
	case KEY_COUNT:
	case KEY_SIZE:
	case KEY_OCTAL:
		return number_set(config, key, text);
	case KEY_SHARE:
		return pool_set(config, key, text);
	case KEY_PATH:
		return path_set(config, key, text);
	case KEY_DEVICE:
		return device_set(config, key, text);
	case KEY_DEVICES:
	case KEY_SPLIT:
	case KEY_RANKS:
		return list_set(config, key, text);
	default:
		return word_set(config, key, text);
	}
}

/* ---- errors ---- */

/* What a number may be, in the unit that was typed. */
static void accepted_number(const struct key *key, char unit, char *text, size_t bytes)
{
	if (key->kind == KEY_SIZE)
		snprintf(text, bytes, "bytes, or a number with K, M, G or T, from %s",
			 size_text(key->min, unit).text);
	else if (key->kind == KEY_SHARE)
		snprintf(text, bytes,
			 "bytes, or a number with K, M, G or T, from 0; or 1%% to 100%% of the "
			 "memory of what computes");
	else if (key->kind == KEY_OCTAL)
		snprintf(text, bytes, "permission bits in octal, 0 to 0%" PRIo64, key->max);
	else
		snprintf(text, bytes, "a number from %" PRIu64 " to %" PRIu64, key->min, key->max);
}

static void accepted_text(const struct key *key, char *text, size_t bytes)
{
	switch (key->kind) {
	case KEY_PATH:
		snprintf(text, bytes, "a path that begins with / or ./ and has at most %zu bytes",
			 key->bytes - 1);
		break;
	case KEY_DEVICE:
		snprintf(text, bytes, "an index, or a UUID as nvidia-smi -L prints it");
		break;
	case KEY_DEVICES:
		snprintf(text, bytes,
			 "at most %u devices of one kind, with commas: GPUs by index or UUID, or "
			 "cpu,cpu,...",
			 GROUP_DEVICES_MAX);
		break;
	case KEY_RANKS:
		snprintf(text, bytes,
			 "at most %u addresses with commas, each once and the path of a socket or "
			 "a numeric host:port",
			 EXCHANGE_RANKS_MAX);
		break;
	case KEY_SPLIT:
		snprintf(text, bytes,
			 "auto, tokens or heads, and NAME:word for single models, with commas, "
			 "each once");
		break;
	default:
		snprintf(text, bytes, "one of: %.*s", (int)strlen(key->words) - 1, key->words);
	}
}

static bool is_number(const struct key *key)
{
	return key->kind == KEY_COUNT || key->kind == KEY_SIZE || key->kind == KEY_SHARE ||
	       key->kind == KEY_OCTAL;
}

static void origin_text(const struct value_origin *origin, const char *name, char *text,
			size_t bytes)
{
	char flag[KEY_FLAG_BYTES];

	key_flag(name, flag);
	if (origin->file)
		snprintf(text, bytes, "%s:%u: %s", origin->file, origin->line, name);
	else
		snprintf(text, bytes, "--%s", flag);
}

int value_read(struct value_target *target, const struct key *key, const char *text,
	       const struct value_origin *origin)
{
	char where[PATH_MAX + 64], accepted[160], unit = units_of(text);

	if (value_set(target->config, key, text) == 0) {
		target->units[key - keys] = unit;
		return 0;
	}
	origin_text(origin, key->name, where, sizeof(where));
	if (is_number(key))
		accepted_number(key, unit, accepted, sizeof(accepted));
	else
		accepted_text(key, accepted, sizeof(accepted));
	log_error("%s: \"%s\" is not accepted; accepted: %s%s", where, text, accepted,
		  origin->file && strchr(text, '#') ? "; a comment has a line of its own" : "");
	return -EINVAL;
}

void value_warn_old(const struct value_origin *origin, const char *old, const char *name)
{
	char where[PATH_MAX + 64], flag[KEY_FLAG_BYTES];

	origin_text(origin, old, where, sizeof(where));
	if (!name) {
		log_warning("%s: nothing needs it any more: it says nothing", where);
		return;
	}
	key_flag(name, flag);
	log_warning("%s: it is called %s%s now; the old name still works", where,
		    origin->file ? "" : "--", origin->file ? name : flag);
}

char value_unit(const struct value_target *target, const char *key)
{
	bool old;

	return target->units[key_find(key, &old) - keys];
}
