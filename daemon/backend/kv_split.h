/*
 * kv_split.h - several devices as the config names them, and how the KV of a model is split over
 * them.
 *
 *      devices = 0,1,2,3                GPUs by index or UUID; or cpu,cpu: as many pools and sets of threads
 *      split = auto, m:tokens           what all models do, and what those do that are named
 */
#ifndef COPPICED_DEVICES_H
#define COPPICED_DEVICES_H

#include "daemon/config/config.h"
#include "kernels/backend.h"
#include "kernels/group/group.h"

#include <stddef.h>

/* How many there are, and whether they are the CPU. -EINVAL: an empty name, too many, or of unlike
 * kinds. */
int devices_parse(const char *text, uint32_t *ret_n, bool *ret_cpu);
/* Items of a list with commas, cut out of copy, which holds what text holds: how many; -EINVAL: an
 * empty one, or more than most. */
int list_split(const char *text, char *copy, const char **ret, uint32_t most);

/* Is it a list of NAME:word, no name twice, and one word for all others at most, each word auto,
 * tokens or heads? */
bool split_is_valid(const char *text);

/* Which of a model's KV heads a shape has; all == 0: it has them all. */
struct split_heads {
	uint32_t first, all;
};

/* Chooses shape->split for a model, and says why in a sentence. Some of its heads alone are on the
 * device that would have them, if the model were split over heads. -ENOTSUP: it is told to be split
 * over heads, which devices do not divide; why says so. */
int split_choose(const struct config *config, const struct backend_ops *ops,
		 struct backend *backend, const char *model, const struct split_heads *heads,
		 struct work_shape *shape, char *why, size_t why_bytes);

#endif
