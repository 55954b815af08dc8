/*
 * kv_split.h - how the KV of a model is split over several devices.
 */
#ifndef COPPICED_KV_SPLIT_H
#define COPPICED_KV_SPLIT_H

#include "proto/must_check.h"
#include "daemon/config/config.h"
#include "kernels/backend.h"

#include <stddef.h>

/* Which of a model's KV heads a shape has; all == 0: it has them all. */
struct split_heads {
	uint32_t first, all;
};

/* Of whom it is asked: a model, and what computes. */
struct split_question {
	const struct config *config;
	const struct backend_ops *ops;
	struct backend *backend;
	const char *model;
	const struct split_heads *heads;
};

/* Chooses shape->split for a model, and says why in a sentence. Some of its heads alone are on the
 * device that would have them, if the model were split over heads. -ENOTSUP: it is told to be split
 * over heads, which devices do not divide; why says so. */
MUST_CHECK int split_choose(const struct split_question *of, struct work_shape *shape, char *why,
			    size_t why_bytes);

#endif
