/*
 * reading.h - values of a JSON object by their keys, and sentences about those that will not do.
 *
 * null is as good as absent. What a function refuses it names with its value.
 */
#ifndef MODEL_READING_H
#define MODEL_READING_H

#include "fault.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct reading {
	const char *path; /* for the sentences */
	const char *within; /* "", or the name of the object with a dot */
	const json_t *object;
	struct fault *fault;
};

/* NULL where it is absent or null. */
const json_t *reading_find(const struct reading *in, const char *key);
/* "PATH: KEY is VALUE: WHY", a long value cut short. Returns error. */
int reading_refuse(const struct reading *in, int error, const char *key, const char *why);

/* A whole number from 1 to max; absent: fallback, and an error where that is 0. */
MUST_CHECK int reading_count(const struct reading *in, const char *key, uint32_t fallback,
			     uint32_t max, uint32_t *ret);
/* A number above 0; absent: fallback, and an error where that is 0. */
MUST_CHECK int reading_number(const struct reading *in, const char *key, double fallback,
			      double *ret);
MUST_CHECK int reading_flag(const struct reading *in, const char *key, bool fallback, bool *ret);
/* A string, the object's; absent: fallback, and an error where that is NULL. */
MUST_CHECK int reading_text(const struct reading *in, const char *key, const char *fallback,
			    const char **ret);
/* An object of its own at key, with nothing in it where it is absent. within: see above. */
MUST_CHECK int reading_object(const struct reading *in, const char *key, const char *within,
			      struct reading *ret);

#endif
