/*
 * group.h - several devices as one backend: each has a share of the KV, computes on it, and tells
 * the others no more of a row than (max, sum, output).
 *
 *      tokens   page p of a model is on device p % n, which knows it as page p / n: whoever gives
 *               out pages stripes each node's over all devices. Every device computes partials of
 *               all rows on what it has; rows are merged and written by one device each: in equal
 *               runs, or where the arena is that wants them.
 *      heads    every device has every page, of each its KV heads: it writes its heads of every
 *               row, and nothing is exchanged.
 *
 *      home     one device has all, such pages as it has with tokens: the others do nothing. So the
 *               heads of each rank of a tensor-parallel engine can be a model of their own, on the
 *               device of that rank.
 *
 * Which it is, each model's shape says. Each device has 1 / n of the pool and of every extent, so
 * that what limits extents limits each device. KV never moves between devices: a move from a page
 * of one device to a page of another is refused (-EXDEV), and counted (kv_bytes_moved).
 *
 * Devices that meet (backend_ops) exchange partials among themselves and run ahead of the caller;
 * others give them to the host, whose threads merge and write, and a batch is complete when submit
 * returns.
 *
 * Processes, of one host or of several, can be one group (ranks): each has as many of the devices,
 * page p is on device p % n of all of them, and each makes the same calls in the same order with
 * arenas of its own, where it finds all rows. Devices that meet exchange them by themselves,
 * others, one to a process, through the ranks' sockets. Such a group shares tokens and nothing
 * else.
 *
 * The answer does not depend on how fast a device is, but on how many there are: partials are
 * merged in order of devices.
 */
#ifndef COPPICE_GROUP_GROUP_H
#define COPPICE_GROUP_GROUP_H

#include "kernels/backend.h"
#include "counts.h"

struct exchange; /* exchange.h */

#define GROUP_DEVICES_MAX BACKEND_DEVICES_MAX

struct group_device {
	const struct backend_ops *ops; /* the same for all */
	const char *name; /* as backend_config's device */
};

/* Read by open alone. backend_config's n_threads are shared out evenly, one to each at least. */
struct group_config {
	const struct group_device *devices; /* [n_devices] */
	uint32_t n_devices;
	uint32_t timeout_ms; /* longest wait for a device; 0: 60 s */
	/* devices that meet: how long their threads look for the next batch before they sleep, as
	 * there are cores */
	uint32_t watch_us;
	/* the processes, for as long as the group is open; NULL: this one alone */
	struct exchange *ranks;
};

/* Of a device of this process, of an open backend_group. */
void group_stats(struct backend *b, uint32_t device, struct group_stats *ret);

/* What works, but not well: a sentence; NULL: nothing. */
const char *group_notice(const struct backend *b);

/* A device's own. */
struct backend *group_backend(struct backend *b, uint32_t device);

/* config->group says of what; pool_bytes and extent_bytes are of all devices together, those of
 * other processes too. Open waits until all processes have come, no longer than the ranks' time
 * limit each time. A device that fails within a batch ends it, and the group with it: completed
 * returns -EIO from then on, fault says which device and why. */
extern const struct backend_ops backend_group;

#endif
