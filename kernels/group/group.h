/*
 * group.h - several devices as one backend: each has a share of the KV, computes on it, and tells the others no more of a
 * row than (max, sum, output).
 *
 *      tokens   extent e, with all its pages, is on device e % n: whoever gives out pages stripes each node's over
 *               extents of all devices. Every device computes partials of all rows on what it has; rows are merged
 *               and written in equal runs, one device each.
 *      heads    every device has every extent, of each page its KV heads: it writes its heads of every row, and nothing
 *               is exchanged.
 *
 * KV never moves between devices: with tokens, a move from a page of one device to a page of another is refused
 * (-EXDEV). Extents and pages have the same numbers on devices as in the group. With tokens each device is opened with the whole pool's
 * address space and commits its own extents; with heads each has 1 / n of pool and extent.
 *
 * The answer does not depend on how fast a device is, but on how many there are: partials are merged in order of devices.
 */
#ifndef COPPICE_GROUP_GROUP_H
#define COPPICE_GROUP_GROUP_H

#include "../backend.h"

#define GROUP_DEVICES_MAX 64u

enum group_split { GROUP_TOKENS, GROUP_HEADS };

struct group_device {
	const struct backend_ops *ops; /* the same for all */
	const char *name; /* as backend_config's device */
};

/* Read by open alone. backend_config's n_threads are shared out evenly, one to each at least. */
struct group_config {
	const struct group_device *devices; /* [n_devices] */
	uint32_t n_devices;
	enum group_split split;
	uint32_t timeout_ms; /* longest wait for a device; 0: 60 s */
};

/* With tokens: where an extent is. */
static inline uint32_t group_device_of(uint32_t extent, uint32_t n_devices)
{
	return extent % n_devices;
}

/* Since open. */
struct group_stats {
	uint64_t local_ns; /* appending and attention */
	uint64_t exchange_ns; /* merging and writing, and waiting for the others */
	uint64_t exchange_bytes; /* of partials, given to others */
	uint64_t appended_tokens; /* times layers */
	uint64_t kv_bytes_read; /* as backend_counters has it */
	uint64_t pool_bytes, pool_peak_bytes; /* committed */
};

/* Of a device of an open backend_group. */
void group_stats(struct backend *b, uint32_t device, struct group_stats *ret);

/* Partials of all rows of a list, as exchange_bytes wants them. */
static inline uint64_t group_parts_bytes(const struct work_shape *shape, uint32_t n_rows)
{
	return (uint64_t)n_rows * shape->n_q_heads * (2 + shape->head_dim) * sizeof(float);
}

/* config->group says of what. A batch is complete when submit returns. A device that fails within a batch ends it, and the group with
 * it: completed returns -EIO from then on, fault says which device and why. */
extern const struct backend_ops backend_group;

#endif
