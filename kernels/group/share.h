/*
 * share.h - what one device of a group is to do of a batch: jobs with its slots and its list, or
 * with its heads.
 */
#ifndef COPPICE_GROUP_SHARE_H
#define COPPICE_GROUP_SHARE_H

#include "proto/must_check.h"
#include "kernels/backend.h"
#include "kernels/plan/cut.h"

#include <pthread.h>

/* A list cut for this device, kept for later jobs of the same plan. */
struct share_cut {
	struct cut cut; /* owned */
	uint64_t plan_id; /* 0: of a job alone */
	uint64_t used; /* number of the batch that used it last */
};

/* What a job of the device points to. */
struct share_job {
	struct work_shape shape;
	struct work_tree tree;
	struct array io; /* owned: struct backend_io, one a query */
	struct array queries; /* owned: struct work_query */
	struct array slots; /* owned: struct work_slice */
};

struct share {
	uint32_t device, n_devices;
	struct backend_job *jobs; /* owned, [n_room] */
	struct share_job *behind; /* owned, [n_room] */
	struct share_cut *cuts; /* owned, [n_cuts] */
	struct share_job advanced; /* what is behind the last share of a plan's next tokens */
	struct {
		struct work_shape shape;
		struct share_cut making; /* whoever prepares */
		struct share_cut made; /* under the lock */
		pthread_mutex_t lock;
	} ahead; /* of the last plan that was prepared */
	uint32_t n_jobs; /* of the batch, that this device takes part in */
	uint32_t n_room, n_cuts;
	uint64_t n_batches;
	uint64_t appended_tokens; /* times layers */
};

void share_init(struct share *s, uint32_t device, uint32_t n_devices);
void share_done(struct share *s);

/* A new batch, of n_jobs at most: what the last one's jobs were is gone. 0 or -ENOMEM. */
MUST_CHECK int share_begin(struct share *s, uint32_t n_jobs);

/* Adds a job: the device's share, the tokens of its pages, all heads; parts and owner are for the
 * caller to say. 0 or -ENOMEM. */
MUST_CHECK int share_tokens(struct share *s, const struct backend_job *job,
			    struct backend_job **ret);
/* The same: all tokens, its heads. n_devices divides the KV heads. */
MUST_CHECK int share_heads(struct share *s, const struct backend_job *job,
			   struct backend_job **ret);

/* What backend_ops.advance of the device is to be asked, of the same splits: ret is good until the
 * next of this share. A query whose token is on another device has no slot. 0, -ENOMEM, or -ESTALE
 * where queries have come further than by a token. */
MUST_CHECK int share_advance_tokens(struct share *s, const struct backend_job *job,
				    struct backend_job *ret);
MUST_CHECK int share_advance_heads(struct share *s, const struct backend_job *job,
				   struct backend_job *ret);

/* What backend_ops.prepare of the device is to be asked, on any thread, one at a time: ret is good
 * until the next. 0, -ENOMEM. */
MUST_CHECK int share_prepare_tokens(struct share *s, const struct backend_job *job,
				    struct backend_job *ret);
MUST_CHECK int share_prepare_heads(struct share *s, const struct backend_job *job,
				   struct backend_job *ret);
/* The device has it: the next job of the plan takes the list that was cut for it. */
void share_prepared(struct share *s);

/* The shape that a device sees where heads are shared out. */
struct work_shape share_shape(const struct work_shape *shape, uint32_t n_devices);

#endif
