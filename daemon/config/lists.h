/*
 * lists.h - values that are lists with commas: devices, ranks, and how KV is split.
 *
 *      devices = 0,1,2,3                      GPUs by index or UUID; or cpu,cpu: as many pools and
 *                                             sets of threads
 *      split = auto, m:tokens                 what all models do, and what those do that are named
 *      ranks = 10.0.0.1:4800,10.0.0.2:4800    the same on every host
 *
 * Texts in, numbers and words out: what they mean is decided elsewhere (backend/). Blanks around
 * items do not count.
 */
#ifndef COPPICED_LISTS_H
#define COPPICED_LISTS_H

#include "proto/must_check.h"

#include <stdbool.h>
#include <stdint.h>

/* Items cut out of copy, which holds what text holds: how many; -EINVAL: an empty one, or more than
 * most. */
MUST_CHECK int list_items(const char *text, char *copy, const char **ret, uint32_t most);
/* How many devices there are, and whether they are the CPU. -EINVAL: an empty name, too many, or of
 * unlike kinds. */
MUST_CHECK int list_devices(const char *text, uint32_t *ret_n, bool *ret_cpu);
/* How many addresses there are. -EINVAL: too many, one that is none, or one twice. */
MUST_CHECK int list_ranks(const char *text, uint32_t *ret_n);

enum list_split { LIST_SPLIT_AUTO, LIST_SPLIT_TOKENS, LIST_SPLIT_HEADS, LIST_SPLIT_NONE };

/* Is it a list of NAME:word, no name twice, and one word for all others at most, each word auto,
 * tokens or heads? */
bool list_is_splits(const char *text);
/* What such a list tells a model to do. */
enum list_split list_split_of(const char *text, const char *model);

#endif
