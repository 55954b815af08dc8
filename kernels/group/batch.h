/*
 * batch.h - a batch on all devices of a group, a thread each.
 *
 *      prepare   shares, memory: nothing has started yet, may fail
 *      run       a device's share, then for each job the exchange and the rows that it writes;
 *                returns when all have ended, or of devices that meet: when all have begun. What
 *                they exchange begins once all have submitted.
 */
#ifndef COPPICE_GROUP_BATCH_H
#define COPPICE_GROUP_BATCH_H

#include "proto/must_check.h"
#include "kernels/backend.h"

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vec.h"
#include "counts.h"
#include "exchange.h"
#include "share.h"

#define FAULT_BYTES 256u
#define NOTICE_BYTES 256u

/* Partials of a batch's rows, job after job, as the device reaches them. */
struct parts {
	float *host; /* owned */
	size_t bytes;
	uint64_t base;
};

struct device {
	struct backend *backend; /* owned */
	/* owned, the ranks' is not; NULL where nothing is exchanged by the host */
	struct exchange *exchange;
	struct share share;
	struct parts parts;
	float *folded; /* owned */
	size_t folded_bytes;
	struct group_stats stats;
	uint32_t n_committed;
	/* its share of the batch, or it was refused: of devices that meet */
	_Atomic bool submitted;
	int result; /* of the batch */
	bool own_fault; /* it was the device itself that failed, not the exchange */
	char error[FAULT_BYTES];
};

/* Memory of one device. */
struct batch_arena {
	uint64_t base, bytes;
	uint32_t device;
};

struct backend {
	const struct backend_ops *ops; /* of all devices */
	struct device *devices; /* owned, [n_devices] */
	uint32_t n_devices; /* of this process */
	uint32_t first, n_all; /* their places among those of all processes */
	struct exchange *ranks; /* borrowed; NULL: no other process */
	bool meets;
	bool apart; /* they have met, but do not reach each other's memory */
	uint32_t timeout_ms;
	uint64_t extent_bytes; /* on each */
	char notice[NOTICE_BYTES];
	struct batch_arena *arenas; /* owned */
	uint32_t n_arenas;
	const struct vec *vec;
	struct threads *threads; /* owned, one a device */
	/* owned: device that writes a row, of all jobs' rows one after the other */
	struct array owner;
	const struct backend_batch *batch; /* while it runs */
	_Atomic uint32_t n_submitted, n_refused; /* of it: devices that meet */
	uint64_t last_id, done_id;
	uint64_t progress_ns; /* when done_id last grew, or something to be done came */
	struct backend_counters counters;
	char fault[FAULT_BYTES];
};

/* O that is wanted there is best written by that device. 0 or -ENOMEM. */
MUST_CHECK int batch_add_arena(struct backend *b, uint32_t device, uint64_t base, uint64_t bytes);
/* False: no such arena. */
bool batch_drop_arena(struct backend *b, uint64_t base, uint32_t *ret_device);

/* The devices take the shapes of all jobs. 0 or -ENOMEM. */
MUST_CHECK int batch_prepare(struct backend *b, const struct backend_batch *batch);
/* Runs what was prepared last, as b->last_id. Where a device fails, b->fault says which and why. 0,
 * or an error of devices that meet, after which nothing is under way: where all have it, the id is
 * the next batch's, where only some have, that of an empty one. */
MUST_CHECK int batch_run(struct backend *b, const struct backend_batch *batch);
/* As backend_ops.advance, of devices that can. */
MUST_CHECK int batch_advance(struct backend *b, const struct backend_job *job);
/* As backend_ops.prepare, of devices that can. */
MUST_CHECK int batch_make_ahead(struct backend *b, const struct backend_job *job);
/* Of devices that meet: how far all are. Where one has failed, or is silent for too long, b->fault
 * says so. */
void batch_look(struct backend *b);

#endif
