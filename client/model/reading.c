/*
 * reading.c - each value is checked for its type and range before it is used as a number.
 *
 * A value is printed as JSON of ASCII alone, so that a sentence stays one line whatever a file
 * holds, and no longer than VALUE_BYTES, of which a file could have millions.
 */
#include "reading.h"
#include "proto/arith.h"

#include <errno.h>
#include <string.h>

#define VALUE_BYTES 48

struct value_text {
	char text[VALUE_BYTES];
	size_t n;
};

static int add_text(const char *bytes, size_t n, void *context)
{
	struct value_text *to = context;
	const size_t room = sizeof(to->text) - 1 - to->n;
	memcpy(to->text + to->n, bytes, min_u64(n, room));
	to->n += min_u64(n, room);
	return n <= room ? 0 : -1;
}

static struct value_text value_text(const json_t *value)
{
	struct value_text text = {{0}, 0};
	if (json_dump_callback(value, add_text, &text,
			       JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) < 0)
		memcpy(text.text + sizeof(text.text) - 4, "...", 4);
	return text;
}

const json_t *reading_find(const struct reading *in, const char *key)
{
	const json_t *value = json_object_get(in->object, key);
	return json_is_null(value) ? NULL : value;
}

int reading_refuse(const struct reading *in, int error, const char *key, const char *why)
{
	const json_t *value = json_object_get(in->object, key);
	if (!value)
		return fault_set(in->fault, error, "%s: %s%s is missing: %s", in->path, in->within,
				 key, why);
	return fault_set(in->fault, error, "%s: %s%s is %s: %s", in->path, in->within, key,
			 value_text(value).text, why);
}

static int missing(const struct reading *in, const char *key)
{
	return fault_set(in->fault, -EINVAL, "%s: %s%s is missing", in->path, in->within, key);
}

int reading_count(const struct reading *in, const char *key, uint32_t fallback, uint32_t max,
		  uint32_t *ret)
{
	const json_t *value = reading_find(in, key);
	if (!value && !fallback)
		return missing(in, key);
	if (!value) {
		*ret = fallback;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < 1 ||
	    json_integer_value(value) > max)
		return fault_set(in->fault, -EINVAL,
				 "%s: %s%s is %s: it must be a whole number from 1 to %u", in->path,
				 in->within, key, value_text(value).text, max);
	*ret = json_integer_value(value);
	return 0;
}

int reading_number(const struct reading *in, const char *key, double fallback, double *ret)
{
	const json_t *value = reading_find(in, key);
	if (!value && !(fallback > 0))
		return missing(in, key);
	if (!value) {
		*ret = fallback;
		return 0;
	}
	if (!json_is_number(value) || !(json_number_value(value) > 0))
		return reading_refuse(in, -EINVAL, key, "it must be a number above 0");
	*ret = json_number_value(value);
	return 0;
}

int reading_flag(const struct reading *in, const char *key, bool fallback, bool *ret)
{
	const json_t *value = reading_find(in, key);
	if (value && !json_is_boolean(value))
		return reading_refuse(in, -EINVAL, key, "it must be true or false");
	*ret = value ? json_is_true(value) : fallback;
	return 0;
}

int reading_text(const struct reading *in, const char *key, const char *fallback, const char **ret)
{
	const json_t *value = reading_find(in, key);
	if (!value && !fallback)
		return missing(in, key);
	if (value && !json_is_string(value))
		return reading_refuse(in, -EINVAL, key, "it must be a string");
	*ret = value ? json_string_value(value) : fallback;
	return 0;
}

int reading_object(const struct reading *in, const char *key, const char *within,
		   struct reading *ret)
{
	const json_t *value = reading_find(in, key);
	if (value && !json_is_object(value))
		return reading_refuse(in, -EINVAL, key, "it must be an object");
	*ret = *in;
	ret->within = within;
	ret->object = value;
	return 0;
}
