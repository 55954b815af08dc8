/*
 * batch.h - a batch on all devices of a group, a thread each.
 *
 *      prepare   shares, memory: nothing has started yet, may fail
 *      run       a device's share, then for each job the exchange and the rows that it writes; returns when all have ended
 */
#ifndef COPPICE_GROUP_BATCH_H
#define COPPICE_GROUP_BATCH_H

#include "group.h"

#include "../cpu/threads.h"
#include "../cpu/vec.h"
#include "exchange.h"
#include "share.h"

#define FAULT_BYTES 256u

/* Partials of a batch's rows, job after job, as the device reaches them. */
struct parts {
	float *host; /* owned */
	size_t bytes;
	uint64_t base;
};

struct device {
	struct backend *backend; /* owned */
	struct exchange *exchange; /* owned; NULL where nothing is exchanged */
	struct share share;
	struct parts parts;
	float *folded; /* owned */
	size_t folded_bytes;
	struct group_stats stats;
	uint32_t n_committed;
	int result; /* of the batch */
	bool own_fault; /* it was the device itself that failed, not the exchange */
	char error[FAULT_BYTES];
};

struct backend {
	const struct backend_ops *ops; /* of all devices */
	struct device *devices; /* owned, [n_devices] */
	uint32_t n_devices;
	bool tokens; /* else heads */
	uint32_t timeout_ms;
	uint64_t extent_bytes;
	const struct vec *vec;
	struct threads *threads; /* owned, one a device */
	struct array
		owner; /* owned: device that writes a row, of all jobs' rows one after the other */
	const struct backend_batch *batch; /* while it runs */
	uint64_t last_id;
	struct backend_counters counters;
	char fault[FAULT_BYTES];
};

/* With tokens: which pages are where. The devices take the shape. */
struct cut_stripe batch_stripe(struct backend *b, const struct work_shape *shape);

/* The devices take the shapes of all jobs. 0 or -ENOMEM. */
int batch_prepare(struct backend *b, const struct backend_batch *batch);
/* Runs what was prepared last. Where a device fails, b->fault says which and why. */
void batch_run(struct backend *b, const struct backend_batch *batch);

#endif
